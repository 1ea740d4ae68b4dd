package io.tidemill.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.ChangelogRange;

/** The range of a CHANGES clause, in the words of {@code questions.py}. Moments are in microseconds since 1970. */
final class Ranges {
  private Ranges() {}

  static Map<String, String> words(ChangelogRange range) {
    Map<String, String> words = new HashMap<>();
    words.put("fromIncluded", Boolean.toString(range.startingBoundInclusive()));
    words.put("toIncluded", Boolean.toString(range.endingBoundInclusive()));
    if (range instanceof ChangelogRange.VersionRange versions) {
      words.put("bounds", "version");
      words.put("from", versions.startingVersion());
      versions.endingVersion().ifPresent(ts -> words.put("to", ts));
    } else if (range instanceof ChangelogRange.TimestampRange times) {
      words.put("bounds", "timestamp");
      words.put("from", Long.toString(times.startingTimestamp()));
      times.endingTimestamp().ifPresent(micros -> words.put("to", Long.toString(micros)));
    }
    return words;
  }
}
