package io.tidemill.spark;

import java.util.Arrays;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;

/** A scan of a Python source that says in EXPLAIN what was pushed down to it. */
final class TidemillScan implements Scan {
  private final Scan scan;
  private final String what;
  private final Filter[] filters;
  private final int limit;

  TidemillScan(Scan scan, String what, Filter[] filters, int limit) {
    this.scan = scan;
    this.what = what;
    this.filters = filters;
    this.limit = limit;
  }

  @Override
  public StructType readSchema() {
    return scan.readSchema();
  }

  @Override
  public String description() {
    String pushed = Arrays.stream(filters).map(Filter::toString).collect(Collectors.joining(", "));
    String text = what + ", columns [" + String.join(", ", readSchema().fieldNames()) + "], PushedFilters: [" + pushed + "]";
    return limit < 0 ? text : text + ", PushedLimit: " + limit;
  }

  @Override
  public Batch toBatch() {
    return scan.toBatch();
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    return scan.toMicroBatchStream(checkpointLocation);
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return scan.supportedCustomMetrics();
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return scan.reportDriverMetrics();
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return scan.columnarSupportMode();
  }
}
