{{- /* The image of hived: a digest goes before a tag. */}}
{{- define "hived.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The image of kube-scheduler: of the cluster's own version if none is given, since it must not be newer. */}}
{{- define "hived-kube-scheduler.image" -}}
{{- $image := .Values.kubeScheduler.image }}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- end }}

{{- /* The name of the ConfigMap with the configuration. */}}
{{- define "hived.configMap" -}}
{{ .Values.existingConfigMap | default "hived-config" }}
{{- end }}

{{- /* The digest of the configuration in the values: the next upgrade sees whether they have changed. */}}
{{- define "hived.digest" -}}
sha256-{{ .Values.configuration | sha256sum | trunc 16 }}
{{- end }}

{{- /*
The configuration. hived itself writes into the ConfigMap what is pushed. An upgrade whose values have the configuration
of the last one must not undo that, so it repeats the text that is in the cluster.
*/}}
{{- define "hived.configuration" -}}
{{- $live := lookup "v1" "ConfigMap" .Release.Namespace (include "hived.configMap" .) | default dict }}
{{- $metadata := $live.metadata | default dict }}
{{- $annotations := $metadata.annotations | default dict }}
{{- $data := $live.data | default dict }}
{{- $text := index $data "hivedscheduler.yaml" | default "" }}
{{- if and $text (eq (index $annotations "hived/chart-configuration" | default "") (include "hived.digest" .)) }}
{{- $text }}
{{- else }}
{{- .Values.configuration }}
{{- end }}
{{- end }}

{{- /* The configuration in the values, as far as Helm can tell that it is one; all other mistakes are the Job's to find. */}}
{{- define "hived.checked" -}}
{{- if not .Values.configuration }}
{{- fail "configuration: it is empty; give your cluster's with --set-file configuration=hivedscheduler.yaml (hived config generate writes one), or name its ConfigMap in existingConfigMap" }}
{{- end }}
{{- $configuration := fromYaml .Values.configuration }}
{{- if hasKey $configuration "Error" }}{{ fail (printf "configuration: %s" $configuration.Error) }}{{ end }}
{{- range $key := list "physicalCluster" "virtualClusters" }}
{{- if not (kindIs "map" (index $configuration $key)) }}
{{- fail (printf "configuration: no %s in it; hived config validate lists every mistake of a file" $key) }}
{{- end }}
{{- end }}
{{- toYaml $configuration }}
{{- end }}

{{- /* The names of the virtual clusters, as a JSON list. */}}
{{- define "hived.virtualClusters" -}}
{{- $names := .Values.virtualClusters }}
{{- if and (not $names) (not .Values.existingConfigMap) }}
{{- $names = keys ((include "hived.checked" . | fromYaml).virtualClusters | default dict) | sortAlpha }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{- /*
What follows from values and configuration, as `hived manifests` derives it, as a JSON object: queues, names of schedulers,
namespaces of tenants, refused resources. A value adds to the configuration or goes before it; nothing of a ConfigMap of
the user's is known.
*/}}
{{- define "hived.derived" -}}
{{- $configuration := dict }}
{{- if not .Values.existingConfigMap }}{{ $configuration = include "hived.checked" . | fromYaml }}{{ end }}
{{- $queues := and (kindIs "map" $configuration.queues) $configuration.queues.enabled }}
{{- $names := .Values.kubeScheduler.names | default $configuration.schedulerNames | default (list "hived") }}
{{- $tenants := .Values.rbac.namespaces }}
{{- if and (not $tenants) (eq "namespaces" ($configuration.rights | default "")) }}
{{- $listed := list (($configuration.opportunistic | default dict).namespaces | default list) }}
{{- range $vc := $configuration.virtualClusters }}{{ $listed = append $listed (($vc | default dict).namespaces | default list) }}{{ end }}
{{- range $entries := $listed }}
{{- range $entry := $entries }}{{ if kindIs "map" $entry }}{{ $tenants = append $tenants $entry.name }}{{ else }}{{ $tenants = append $tenants $entry }}{{ end }}{{ end }}
{{- end }}
{{- $tenants = $tenants | compact | uniq | sortAlpha }}
{{- end }}
{{- $refused := .Values.webhook.refusedResources }}
{{- if not $refused }}
{{- $physical := $configuration.physicalCluster | default (dict "cellTypes" (dict "any" (dict "childCellType" "GPU"))) }}
{{- range $cellType := $physical.cellTypes }}
{{- if not (hasKey $physical.cellTypes $cellType.childCellType) }}
{{- $sku := get ($physical.skuTypes | default dict) $cellType.childCellType | default dict }}
{{- $isOfDevices := or (hasKey $sku "resource") (not (or (hasKey $sku "cpu") (hasKey $sku "memory"))) }}
{{- $resource := $sku.resource | default "nvidia.com/gpu" }}
{{- $treated := get ($configuration.foreignDevices | default dict) $resource | default "refuse" }}
{{- if and (hasKey $sku "gpu" | ternary $sku.gpu $isOfDevices) (eq $treated "refuse") }}{{ $refused = append $refused $resource }}{{ end }}
{{- end }}
{{- end }}
{{- $refused = $refused | uniq | sortAlpha }}
{{- end }}
{{- toJson (dict "queues" (or .Values.queues.enabled $queues) "holdsJobs" (or .Values.webhook.holdsJobs $queues) "names" $names "tenants" $tenants "refused" $refused) }}
{{- end }}

{{- /* The schedulerNames for some virtual clusters, as a JSON list; those without {vc} only if they are shared. */}}
{{- define "hived.namesFor" -}}
{{- $found := list }}
{{- range $name := (include "hived.derived" . | fromJson).names }}
{{- if contains "{vc}" $name }}
{{- range $vc := $.virtualClusters }}{{ $found = append $found (replace "{vc}" (lower $vc) $name) }}{{ end }}
{{- else if $.shared }}
{{- $found = append $found $name }}
{{- end }}
{{- end }}
{{- toJson (uniq $found) }}
{{- end }}

{{- /*
The kube-schedulers, as a JSON list: name, suffix of the virtual cluster, names of the profiles. With one for each
virtual cluster, that of `default`, else the first one, serves the names without {vc}, since each is served once.
*/}}
{{- define "hived.kubeSchedulers" -}}
{{- $virtualClusters := include "hived.virtualClusters" . | fromJsonArray }}
{{- $made := list }}
{{- if .Values.kubeScheduler.perVirtualCluster }}
{{- if not $virtualClusters }}{{ fail "kubeScheduler.perVirtualCluster: there is no virtual cluster; name them in virtualClusters" }}{{ end }}
{{- $host := has "default" $virtualClusters | ternary "default" (first $virtualClusters) }}
{{- $taken := dict }}
{{- range $vc := $virtualClusters }}
{{- $suffix := regexReplaceAll "[^a-z0-9]+" (lower $vc) "-" | trunc 40 | trimAll "-" }}
{{- if or (not $suffix) (hasKey $taken $suffix) }}{{ fail (printf "virtual cluster %q: there is no name of its own for its kube-scheduler" $vc) }}{{ end }}
{{- $_ := set $taken $suffix true }}
{{- $names := include "hived.namesFor" (dict "Values" $.Values "virtualClusters" (list $vc) "shared" (eq $vc $host)) | fromJsonArray }}
{{- if not $names }}{{ fail "kubeScheduler.perVirtualCluster needs a name with {vc} in kubeScheduler.names, such as hived-{vc}" }}{{ end }}
{{- $made = append $made (dict "name" (printf "hived-kube-scheduler-%s" $suffix) "suffix" $suffix "names" $names) }}
{{- end }}
{{- else }}
{{- $names := include "hived.namesFor" (dict "Values" .Values "virtualClusters" $virtualClusters "shared" true) | fromJsonArray }}
{{- if not $names }}{{ fail "kubeScheduler.names: there is no name to serve" }}{{ end }}
{{- $made = append $made (dict "name" "hived-kube-scheduler" "suffix" "" "names" $names) }}
{{- end }}
{{- toJson $made }}
{{- end }}

{{- /* The names of the Leases of the kube-schedulers, as a JSON list. */}}
{{- define "hived.schedulerLeases" -}}
{{- $names := list }}
{{- range $scheduler := include "hived.kubeSchedulers" . | fromJsonArray }}{{ $names = append $names $scheduler.name }}{{ end }}
{{- toJson $names }}
{{- end }}

{{- /* All schedulerNames that are served, as a list in CEL. */}}
{{- define "hived.schedulerNames" -}}
{{- $virtualClusters := include "hived.virtualClusters" . | fromJsonArray }}
{{- include "hived.namesFor" (dict "Values" .Values "virtualClusters" $virtualClusters "shared" true) | replace "\",\"" "\", \"" }}
{{- end }}

{{- /* The resources that pods of other schedulers are refused, as a list in CEL. */}}
{{- define "hived.refusedResources" -}}
{{- toJson (include "hived.derived" . | fromJson).refused | replace "\",\"" "\", \"" }}
{{- end }}

{{- /* The digest of a KubeSchedulerConfiguration: its pods are replaced when it changes. */}}
{{- define "hived.schedulerDigest" -}}
sha256-{{ printf "%s\n" (include "hived.schedulerConfig" .) | sha256sum | trunc 16 }}
{{- end }}

{{- /* The KubeSchedulerConfiguration with a profile for each of `names`. */}}
{{- define "hived.schedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  leaseDuration: "6s"
  renewDeadline: "4s"
  retryPeriod: "1s"
clientConnection:
  qps: 1000
  burst: 2000
percentageOfNodesToScore: 100
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
profiles:
{{- range $name := $.names }}
- schedulerName: {{ $name | quote }}
  pluginConfig:
  - name: DefaultPreemption
    args:
      minCandidateNodesPercentage: 100
  - name: NodeResourcesFit
    args:
      ignoredResourceGroups:
      - hivedscheduler.microsoft.com
{{- end }}
extenders:
- filterVerb: filter
{{- if $.Values.tls.enabled }}
  urlPrefix: https://hived:9096/v1/extender
{{- else }}
  urlPrefix: http://hived:9096/v1/extender
{{- end }}
  preemptVerb: preempt
  bindVerb: bind
  weight: 1
{{- if $.Values.tls.enabled }}
  enableHTTPS: true
{{- else }}
  enableHTTPS: false
{{- end }}
{{- if $.Values.tls.enabled }}
  tlsConfig:
    caFile: /etc/kube-scheduler-tls/ca.crt
    certFile: /etc/kube-scheduler-tls/tls.crt
    keyFile: /etc/kube-scheduler-tls/tls.key
{{- end }}
  nodeCacheCapable: true
  ignorable: false
  httpTimeout: "10s"
{{- end }}
