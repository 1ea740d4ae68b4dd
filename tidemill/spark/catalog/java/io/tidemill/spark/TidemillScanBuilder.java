package io.tidemill.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Collects what Spark pushes down, then has Spark's builder of Python sources make the scan.
 *
 * <p>Spark offers filters before it chooses columns, and a Python source plans for the columns that it was given. So the source is asked
 * once, at the end. It leaves ranges of keys and parts of the log out by the filters; Spark applies all of them again.
 */
final class TidemillScanBuilder implements SupportsPushDownFilters, SupportsPushDownRequiredColumns, SupportsPushDownLimit {
  private final String format;
  private final String what;
  private final StructType schema;
  private final Map<String, String> options;
  private Filter[] filters = {};
  private StructType columns;
  private int limit = -1;

  TidemillScanBuilder(String format, String what, StructType schema, Map<String, String> options) {
    this.format = format;
    this.what = what;
    this.schema = schema;
    this.options = options;
    this.columns = schema;
  }

  @Override
  public Filter[] pushFilters(Filter[] offered) {
    filters = offered;
    return offered;
  }

  @Override
  public Filter[] pushedFilters() {
    return filters;
  }

  /** {@code required}: none for a count; then the narrowest column there is stands for the row. */
  @Override
  public void pruneColumns(StructType required) {
    if (required.isEmpty()) {
      columns = new StructType(new StructField[] {narrowest()});
    } else {
      columns = required;
    }
  }

  private StructField narrowest() {
    StructField best = schema.fields()[0];
    for (StructField field : schema.fields()) {
      if (field.dataType().defaultSize() < best.dataType().defaultSize()) {
        best = field;
      }
    }
    return best;
  }

  /** Spark offers a limit only where no filter is left to it, which is never so with one; each task stops at it. */
  @Override
  public boolean pushLimit(int rows) {
    if (!format.equals("tidemill.table")) {
      return false;
    }
    limit = rows;
    return true;
  }

  @Override
  public boolean isPartiallyPushed() {
    return true;
  }

  @Override
  public Scan build() {
    Map<String, String> all = new HashMap<>(options);
    if (limit >= 0) {
      all.put("rowsPerTask", Integer.toString(limit));
    }
    CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(all);
    PythonDataSourceV2 source = PythonSources.of(format, given, columns);
    PythonScanBuilder builder = new PythonScanBuilder(source, format, columns, given);
    builder.pushFilters(filters);
    return new TidemillScan(builder.build(), what, filters, limit);
  }
}
