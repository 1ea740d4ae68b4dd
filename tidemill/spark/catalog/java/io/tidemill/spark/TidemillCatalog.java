package io.tidemill.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The databases and tables of a TiDB cluster, or of a change log, as a catalog of Spark: {@code spark.sql.catalog.NAME}.
 *
 * <p>It has no knowledge of TiDB. Each question goes to the Python source {@code tidemill.catalog}, rows are read by {@code tidemill.table}
 * and changes by {@code tidemill}; what stands here is what Spark takes from a Java class only. The catalog cannot be written to.
 */
public final class TidemillCatalog implements TableCatalog, SupportsNamespaces {
  private static final String[] NO_NAMES = {};

  private String name;
  private Map<String, String> options;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    this.options = new HashMap<>(options.asCaseSensitiveMap());
    // Spark pushes filters down to Python sources only where it is told to.
    SQLConf.get().setConfString("spark.sql.python.filterPushdown.enabled", "true");
  }

  @Override
  public String name() {
    return name;
  }

  // Databases

  @Override
  public String[][] listNamespaces() {
    List<String[]> listed = new ArrayList<>();
    for (String database : ask("databases", Map.of()).names()) {
      listed.add(new String[] {database});
    }
    return listed.toArray(new String[0][]);
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length == 0) {
      return listNamespaces();
    }
    loadNamespaceMetadata(namespace);
    return new String[0][];
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    return namespace.length == 1 && ask("database", Map.of("database", namespace[0])).exists();
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length != 1) {
      throw new NoSuchNamespaceException(namespace);
    }
    Answer answer = ask("database", Map.of("database", namespace[0]));
    if (!answer.exists()) {
      throw new NoSuchNamespaceException(namespace);
    }
    return answer.properties();
  }

  // Tables

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length != 1) {
      throw new NoSuchNamespaceException(namespace);
    }
    Answer answer = ask("tables", Map.of("database", namespace[0]));
    if (!answer.exists()) {
      throw new NoSuchNamespaceException(namespace);
    }
    List<Identifier> listed = new ArrayList<>();
    for (String table : answer.names()) {
      listed.add(Identifier.of(namespace, table));
    }
    return listed.toArray(new Identifier[0]);
  }

  @Override
  public Table loadTable(Identifier identifier) throws NoSuchTableException {
    return load(identifier, Map.of());
  }

  @Override
  public Table loadTable(Identifier identifier, String version) throws NoSuchTableException {
    return load(identifier, Map.of("version", version));
  }

  /** {@code micros}: of the moment, since 1970. */
  @Override
  public Table loadTable(Identifier identifier, long micros) throws NoSuchTableException {
    return load(identifier, Map.of("asOfMicros", Long.toString(micros)));
  }

  private Table load(Identifier identifier, Map<String, String> moment) throws NoSuchTableException {
    return new TidemillTable(name, describe("table", identifier, moment));
  }

  @Override
  public Changelog loadChangelog(Identifier identifier, ChangelogContext context, CaseInsensitiveStringMap given) throws NoSuchTableException {
    Map<String, String> about = SparksOptions.without(given);
    about.putAll(Ranges.words(context.range()));
    // Not `new TidemillChangelog`: Java's verifier would load Changelog with this class, and Spark 4.1 has none.
    return TidemillChangelog.of(name, describe("changes", identifier, about));
  }

  private Answer describe(String question, Identifier identifier, Map<String, String> more) throws NoSuchTableException {
    if (identifier.namespace().length != 1) {
      throw new NoSuchTableException(identifier);
    }
    Map<String, String> about = new HashMap<>(more);
    about.put("database", identifier.namespace()[0]);
    about.put("name", identifier.name());
    Answer answer = ask(question, about);
    if (!answer.exists()) {
      throw new NoSuchTableException(identifier);
    }
    return answer;
  }

  private Answer ask(String question, Map<String, String> about) {
    Map<String, String> asked = new HashMap<>(options);
    asked.putAll(about);
    asked.put("question", question);
    StructType schema = PythonSources.schema("tidemill.catalog", asked);
    return new Answer(schema.fields()[0]);
  }

  // What would write

  private UnsupportedOperationException readOnly() {
    return new UnsupportedOperationException("catalog " + name + ": TiDB is read, not written, through it");
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {
    throw readOnly();
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw readOnly();
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw readOnly();
  }

  @Override
  public Table createTable(Identifier identifier, StructType schema, Transform[] partitions, Map<String, String> properties) {
    throw readOnly();
  }

  @Override
  public Table alterTable(Identifier identifier, TableChange... changes) {
    throw readOnly();
  }

  @Override
  public boolean dropTable(Identifier identifier) {
    throw readOnly();
  }

  @Override
  public void renameTable(Identifier oldName, Identifier newName) {
    throw readOnly();
  }

  @Override
  public String[] defaultNamespace() {
    return NO_NAMES;
  }

  @Override
  public Set<TableCatalogCapability> capabilities() {
    return Set.of();
  }
}
