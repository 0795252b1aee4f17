{{- /* Made by `make chart` from config/deploy, which has the reasons as comments. Do not edit. */}}
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

{{- define "hived.sampleDigest" -}}
d032b16c7d2a8683
{{- end }}
