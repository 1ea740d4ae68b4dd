{{- define "tidemill.name" -}}
{{- printf "%s-tidemill" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "tidemill.selector" -}}
app.kubernetes.io/name: tidemill
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tidemill.labels" -}}
{{ include "tidemill.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "tidemill.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "tidemill.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}{{ .Values.serviceAccount.name | default (include "tidemill.name" .) }}
{{- else -}}{{ .Values.serviceAccount.name | default "default" }}{{- end -}}
{{- end -}}

{{- define "tidemill.isServer" -}}
{{- if eq .Values.mode "server" -}}yes{{- else if ne .Values.mode "run" -}}{{ fail "mode: run or server" }}{{- end -}}
{{- end -}}

{{- define "tidemill.port" -}}
{{- if include "tidemill.isServer" . -}}{{ .Values.server.port }}{{- else -}}{{ .Values.metrics.port }}{{- end -}}
{{- end -}}

{{- define "tidemill.statusIsOpen" -}}
{{- if include "tidemill.isServer" . -}}
{{- if .Values.server.existingSecret -}}yes{{- else if or .Values.metrics.open .Values.metrics.serviceMonitor.enabled -}}
{{ fail "server.existingSecret: an API that others reach needs tokens" }}
{{- end -}}
{{- else if or .Values.metrics.open .Values.metrics.serviceMonitor.enabled -}}yes{{- end -}}
{{- end -}}

{{- define "tidemill.onKubernetes" -}}
{{- if hasPrefix "k8s://" .Values.spark.master -}}yes{{- end -}}
{{- end -}}
