{{- define "substrate.fullname" -}}
{{- $name := default "substrate" .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "substrate.labels" -}}
app.kubernetes.io/name: substrate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: substrate
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* What selectors use: never changes. (list $ part) */}}
{{- define "substrate.selector" -}}
app.kubernetes.io/name: substrate
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* (list $ part) */}}
{{- define "substrate.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
substrate/{{ index . 1 }}:{{ default (index . 0).Chart.AppVersion $image.tag }}
{{- end -}}

{{/* Security of a container that needs nothing of its host. */}}
{{- define "substrate.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "substrate.nonRoot" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Replicas prefer different nodes and zones. (list $ part) */}}
{{- define "substrate.spread" -}}
{{- $part := index . 1 -}}
{{- $values := get (index . 0).Values $part -}}
affinity:
{{- with $values.affinity }}
  {{- toYaml . | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "substrate.selector" . | nindent 14 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "substrate.selector" . | nindent 8 }}
{{- end -}}

{{/* "384Mi" → bytes. (list name-of-the-value quantity) */}}
{{- define "substrate.bytes" -}}
{{- $text := index . 1 -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $unit := regexFind "[KMGT]i$" $text -}}
{{- if not $unit -}}
{{- fail (printf "\n\n%s is %q: give whole Ki, Mi, Gi or Ti, for instance 384Mi.\n" (index . 0) $text) -}}
{{- end -}}
{{- mul (trimSuffix $unit $text | int64) (get $units $unit) -}}
{{- end -}}

{{/* Flags that every part has. (list $ part) */}}
{{- define "substrate.commonArgs" -}}
{{- $root := index . 0 -}}
- --namespace={{ $root.Release.Namespace }}
- --log-level={{ (get $root.Values (index . 1)).logLevel }}
- --metrics-listen=0.0.0.0:9464
{{- end -}}

{{- define "substrate.tlsArgs" -}}
- --tls-cert=/etc/substrate/tls/tls.crt
- --tls-key=/etc/substrate/tls/tls.key
- --tls-ca=/etc/substrate/tls/ca.crt
{{- end -}}

{{- define "substrate.downwardEnv" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end -}}

{{- define "substrate.registries" -}}
{{- with .Values.registries.mirrors }}
mirrors:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.registries.pullSecrets }}
pullSecrets:
  {{- range . }}
  - /etc/substrate/pull-secrets/{{ . }}
  {{- end }}
{{- end }}
{{- if .Values.registries.caConfigMap }}
caFile: /etc/substrate/registry-ca/ca.crt
{{- end }}
{{- end -}}
