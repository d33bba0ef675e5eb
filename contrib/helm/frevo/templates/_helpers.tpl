{{- define "frevo.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}
{{- define "frevo.selector" -}}
app.kubernetes.io/name: frevo
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "frevo.labels" -}}
{{ include "frevo.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
{{- define "frevo.secret" -}}
{{ .Values.account.existingSecret | default (printf "%s-account" (include "frevo.name" .)) }}
{{- end }}
{{- define "frevo.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{/* The name of the server for pods of the cluster. */}}
{{- define "frevo.host" -}}
{{ include "frevo.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}
{{- define "frevo.container" -}}
image: {{ include "frevo.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}
