#!/bin/sh
# `tidemill …`, or, as Spark's driver starts its pods on Kubernetes, `executor`: then Spark's own settings are in the environment.
set -eu
if [ "${1:-}" != executor ]; then
  exec /usr/bin/tini -- tidemill "$@"
fi
shift
jars=$(python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "jars")')
options=$(env | sed -n 's/^SPARK_JAVA_OPT_[0-9]*=//p')
# One option a line
set -f
IFS='
'
# shellcheck disable=SC2086
exec /usr/bin/tini -- java $options "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "${SPARK_CLASSPATH:-}:$jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" --podName "$SPARK_EXECUTOR_POD_NAME"
