package io.tidemill.spark;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Options of a read that Spark takes for itself and hands on all the same. The Python sources refuse what they do not know. */
final class SparksOptions {
  private static final Set<String> SPARKS =
      Set.of(
          "versionasof",
          "timestampasof",
          "startingversion",
          "endingversion",
          "startingtimestamp",
          "endingtimestamp",
          "startingboundinclusive",
          "endingboundinclusive",
          "deduplicationmode",
          "computeupdates");

  private SparksOptions() {}

  /** What is left for the source. */
  static Map<String, String> without(CaseInsensitiveStringMap given) {
    Map<String, String> left = new HashMap<>(given.asCaseSensitiveMap());
    left.keySet().removeIf(name -> SPARKS.contains(name.toLowerCase(Locale.ROOT)));
    return left;
  }
}
