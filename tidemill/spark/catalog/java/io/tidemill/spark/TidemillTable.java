package io.tidemill.spark;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table as of one ts. All reads of it are of that ts. */
final class TidemillTable implements Table, SupportsRead {
  private final String name;
  private final Answer answer;

  TidemillTable(String catalog, Answer answer) {
    this.name = catalog + "." + answer.name();
    this.answer = answer;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Column[] columns() {
    return answer.columns();
  }

  @Override
  public Map<String, String> properties() {
    return answer.properties();
  }

  @Override
  public String version() {
    return answer.properties().get("as-of-ts");
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(TableCapability.BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    Map<String, String> options = SparksOptions.without(given);
    options.putAll(answer.options());
    return new TidemillScanBuilder("tidemill.table", name + " as of " + version(), answer.schema(), options);
  }
}
