# Makes the cluster fragmented: on each machine of virtual cluster research runs a job of two GPUs, and a job of two
# whole machines waits. Pods that are evicted are made again, as a controller would, for as long as the cluster runs.
set -e
[ -e running.yaml ] && exit
kubectl delete jobs,pods --all --all-namespaces
hived config push -f fragmented.yaml --message "all racks but one for research" --yes --allow-downgrade

pod() { # NAME GROUP PODS CELLS [NODE]
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
  ${5:+nodeSelector: {kubernetes.io/hostname: $5\}}
  containers:
  - {name: main, image: example/train, resources: {limits: {hivedscheduler.microsoft.com/pod-scheduling-enable: 1}}}
END
}

number=0
for node in a1 a2 a3 a4 b1 b2 b3 b4 c1 c2 c3 c4; do
  number=$((number + 1))
  pod g$number-0 g$number 1 2 $node >> placed.yaml
  pod g$number-0 g$number 1 2 >> running.yaml
done
for name in training-0 training-1; do
  pod $name training 2 8
done > waiting.yaml

kubectl create namespace team
kubectl create -f placed.yaml
kubectl wait -n team --for condition=Ready pod --all --timeout 60s
kubectl create -f waiting.yaml
kubectl wait -n team --for condition=PodScheduled=False pod/training-0 --timeout 60s
while kubectl get nodes; do kubectl create -f running.yaml || true; sleep 0.5; done > /dev/null 2>&1 &
