package io.tidemill.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The changes of a table: an update is its image before and the one after, each in a row of its own. */
final class TidemillChangelog implements Changelog {
  private final String name;
  private final Answer answer;

  private TidemillChangelog(String catalog, Answer answer) {
    this.name = catalog + "." + answer.name();
    this.answer = answer;
  }

  static Changelog of(String catalog, Answer answer) {
    return new TidemillChangelog(catalog, answer);
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
  public boolean containsCarryoverRows() {
    return false;
  }

  @Override
  public boolean containsIntermediateChanges() {
    return true;
  }

  @Override
  public boolean representsUpdateAsDeleteAndInsert() {
    return false;
  }

  @Override
  public NamedReference[] rowId() {
    String[] key = answer.key();
    NamedReference[] references = new NamedReference[key.length];
    for (int i = 0; i < key.length; i++) {
      references[i] = Expressions.column(key[i]);
    }
    return references;
  }

  @Override
  public NamedReference rowVersion() {
    return Expressions.column("_commit_version");
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    Map<String, String> options = SparksOptions.without(given);
    options.putAll(answer.options());
    return new TidemillScanBuilder("tidemill", name + " changes", answer.schema(), options);
  }
}
