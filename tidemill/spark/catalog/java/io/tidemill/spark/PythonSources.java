package io.tidemill.spark;

import java.util.Map;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/** Spark's own Java half of a Python source, made as {@code format(NAME)} makes it. */
final class PythonSources {
  private PythonSources() {}

  static StructType schema(String format, Map<String, String> options) {
    return provider(format).inferSchema(new CaseInsensitiveStringMap(options));
  }

  /** A source that reads these columns. It is asked for them once, in Python; what is built on it takes that answer. */
  static PythonDataSourceV2 of(String format, CaseInsensitiveStringMap options, StructType columns) {
    PythonDataSourceV2 provider = provider(format);
    provider.getOrCreateDataSourceInPython(format, options, Option.apply(columns));
    return provider;
  }

  private static PythonDataSourceV2 provider(String format) {
    PythonDataSourceV2 provider = new PythonDataSourceV2();
    provider.setShortName(format);
    return provider;
  }
}
