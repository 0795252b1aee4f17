# Enables queues, and has two Jobs of a team wait in one, behind a third that uses all of its cells.
set -e
if hived get queue > /dev/null 2>&1; then exit; fi
{ cat hivedscheduler.yaml; echo 'rules: 2'; echo 'queues: {enabled: true}'; } > queued.yaml
hived config push -f queued.yaml --yes --message queues
kubectl delete job train --ignore-not-found  # so that one job alone has the name
job() { # NAMESPACE NAME PODS
  kubectl create -f - <<JOB
apiVersion: batch/v1
kind: Job
metadata: {name: $2, namespace: $1}
spec:
  suspend: true
  parallelism: $3
  completions: $3
  template:
    metadata:
      annotations: {hivedscheduler.microsoft.com/virtual-cluster: training}
    spec:
      schedulerName: hived
      restartPolicy: Never
      containers:
      - {name: main, image: x, resources: {limits: {nvidia.com/gpu: 8}}}
JOB
}
kubectl get namespace research || kubectl create namespace research
job default running 4
job research train 4
job default other 4
for _ in $(seq 100); do
  if hived get queue training | grep -q other; then exit; fi
  sleep 0.1
done
echo "the jobs are in no queue" >&2
exit 1
