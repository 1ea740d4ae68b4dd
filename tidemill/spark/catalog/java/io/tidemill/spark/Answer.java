package io.tidemill.spark;

import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * What {@code tidemill.catalog} answered. Spark asks a Python source for its schema without starting a job, so an answer is a schema of one
 * field: its metadata say what was asked for, its type has the columns of a table.
 */
final class Answer {
  private final StructField field;
  private final Metadata metadata;

  Answer(StructField field) {
    this.field = field;
    this.metadata = field.metadata();
  }

  boolean exists() {
    return metadata.getBoolean("exists");
  }

  String[] names() {
    return metadata.getStringArray("names");
  }

  String[] key() {
    return metadata.getStringArray("key");
  }

  StructType schema() {
    return (StructType) field.dataType();
  }

  Column[] columns() {
    StructField[] fields = schema().fields();
    Column[] columns = new Column[fields.length];
    for (int i = 0; i < fields.length; i++) {
      String comment = fields[i].getComment().isDefined() ? fields[i].getComment().get() : null;
      columns[i] = Column.create(fields[i].name(), fields[i].dataType(), fields[i].nullable(), comment, null);
    }
    return columns;
  }

  String name() {
    return metadata.getString("name");
  }

  /** What is told of a table. */
  Map<String, String> properties() {
    return texts("properties");
  }

  /** The options with which the table, or its changes, are read. */
  Map<String, String> options() {
    return texts("options");
  }

  private Map<String, String> texts(String member) {
    Metadata found = metadata.getMetadata(member);
    Map<String, String> texts = new TreeMap<>();
    for (String name : scala.jdk.javaapi.CollectionConverters.asJava(found.map().keys())) {
      texts.put(name, found.getString(name));
    }
    return texts;
  }
}
