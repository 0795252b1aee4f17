# Makes the cluster fragmented: on each machine of virtual cluster research runs a job of two GPUs, and a job of two
# whole machines waits. Pods that are evicted are made again, as a controller would, for as long as the cluster runs.
set -e
[ -e running.yaml ] && exit
kubectl delete jobs,pods --all --all-namespaces
hived config push -f fragmented.yaml --message "all racks but one for research" --yes --allow-downgrade

pod() { # NAME GROUP PODS CELLS
  cat <<END
---
apiVersion: v1
kind: Pod
metadata:
  name: $1
  namespace: team
  annotations:
    hivedscheduler.microsoft.com/pod-scheduling-spec: |
      {virtualCluster: research, leafCellNumber: $4, affinityGroup: {name: $2, members: [{podNumber: $3, leafCellNumber: $4}]}}
spec:
  schedulerName: hived-research
  containers:
  - {name: main, image: example/train, resources: {limits: {hivedscheduler.microsoft.com/pod-scheduling-enable: 1}}}
END
}

kubectl create namespace team
# Each job of two GPUs is followed by one that fills its machine, and leaves later. A nodeSelector would do that, too, but
# then no job could move.
for number in {1..12}; do
  pod g$number-0 g$number 1 2 >> running.yaml
  pod fill$number-0 fill$number 1 6 > fill.yaml
  kubectl create -f <(pod g$number-0 g$number 1 2) -f fill.yaml
  kubectl wait -n team --for condition=Ready pod/g$number-0 pod/fill$number-0 --timeout 60s
done
for name in training-0 training-1; do
  pod $name training 2 8
done > waiting.yaml

kubectl delete -n team pod fill{1..12}-0
kubectl create -f waiting.yaml
kubectl wait -n team --for condition=PodScheduled=False pod/training-0 --timeout 60s
while kubectl get nodes; do kubectl create -f running.yaml || true; sleep 0.5; done > /dev/null 2>&1 &
