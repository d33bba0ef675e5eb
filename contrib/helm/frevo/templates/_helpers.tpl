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
{{/* A cluster of several pods. Its values are checked here. */}}
{{- define "frevo.cluster" -}}
{{- if .Values.cluster.enabled -}}
{{- if ne .Values.cluster.fence "none" }}{{ fail "cluster.fence must be \"none\": pods have no rights for another fence, and a pod that was stopped may write once more when it goes on (docs/cluster-fences.md)" }}{{ end -}}
{{- if not (or .Values.persistence.data.existingClaim (has "ReadWriteMany" .Values.persistence.data.accessModes)) }}{{ fail "a cluster needs persistence.data.accessModes: [ReadWriteMany], or an existingClaim of such a volume" }}{{ end -}}
{{- if lt (int .Values.cluster.replicas) 2 }}{{ fail "cluster.replicas must be 2 or more" }}{{ end -}}
true
{{- end -}}
{{- end }}
{{/* The SID of the pods of a cluster: made of the release, so that it is the same each time. */}}
{{- define "frevo.sid" -}}
{{- $made := printf "frevo %s/%s" .Release.Namespace .Release.Name | sha256sum -}}
{{- $part := list -}}
{{- range $at := until 3 -}}
{{- $part = append $part (printf "0x%s" (substr (int (mul 8 $at)) (int (mul 8 (add $at 1))) $made) | int64) -}}
{{- end -}}
{{ .Values.cluster.sid | default (join "-" $part | printf "S-1-5-21-%s") }}
{{- end }}
{{- define "frevo.etcd" -}}
{{ include "frevo.name" . }}-etcd
{{- end }}
{{- define "frevo.etcd.selector" -}}
app.kubernetes.io/name: frevo-etcd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{/* The members of the chart's own etcd, as a list in JSON of NAME and HOST. */}}
{{- define "frevo.etcd.members" -}}
{{- $members := list -}}
{{- range $at := until (int .Values.cluster.etcd.replicas) -}}
{{- $name := printf "%s-%d" (include "frevo.etcd" $) $at -}}
{{- $members = append $members (dict "name" $name "host" (printf "%s.%s.%s.svc" $name (include "frevo.etcd" $) $.Release.Namespace)) -}}
{{- end -}}
{{ toJson $members }}
{{- end }}
{{- define "frevo.etcd.endpoints" -}}
{{- $endpoints := .Values.cluster.etcd.endpoints -}}
{{- if not $endpoints -}}
{{- range include "frevo.etcd.members" . | fromJsonArray -}}
{{- $endpoints = append $endpoints (printf "http://%s:2379" .host) -}}
{{- end -}}
{{- end -}}
{{ toJson $endpoints }}
{{- end }}
