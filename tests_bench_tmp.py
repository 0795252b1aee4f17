"""usage: NODES"""
import sys, time, random
from time import perf_counter_ns
import msgspec
import numpy as np
from tests.benchmarks import switching as sw
from tests.benchmarks.switching import SwitchMeasurement, Caller, LOADS, _job
from tests.benchmarks.measure import Measurement
from tests.benchmarks.workload import KINDS, SMALLEST
from tests.benchmarks.web import names_text, pod_text
from hived_extender.pods.wire import FilterArgs, decode_args, Pod
from hived_extender.service.explaining import Explaining
from hived_extender.http.server import settle_process, tune_process
from hived_extender.insight.desk import InsightDesk

nodes = int(sys.argv[1])
sw.PART = float(sys.argv[2]) if len(sys.argv) > 2 else 0.9
m = SwitchMeasurement(nodes, 1, lambda t: print(t, file=sys.stderr))
tune_process()
load = Measurement(nodes, 1, m._progress); load.start()
kind = LOADS["8-GPU"]
try:
    m._fill(load, kind)
except RuntimeError as e:
    print(e, file=sys.stderr)
from tests.benchmarks.clusters import VC_NAMES
from tests.benchmarks.workload import LOW_PRIORITY
vc = VC_NAMES[0]
wanted = [k for k in KINDS if k.label in ("1x8","2x8","4x8","8x8")] or [kind]
print([k.label for k in KINDS], file=sys.stderr)
waiting = []
while len(waiting) < 1000:
    waiting += load.source.make(wanted[len(waiting) % len(wanted)], vc, LOW_PRIORITY).pods
# fill the VC completely
while load.driver.place(load.source.make(kind, vc, LOW_PRIORITY), "load", may_preempt=False): pass
service = m._service(load, waiting)
settle_process()
names = names_text(load.driver.state.topology.node_names)
bodies = [b'{"Pod":%s,"Nodes":null,"NodeNames":%s}' % (pod_text(pod).encode(), names) for pod in waiting]
print("waiting", len(waiting), file=sys.stderr)
real = Explaining.certificate
none = lambda self, *a, **k: None
out = {}
from hived.scheduler import handle
spent_explaining = []
def timed(self, *a, **k):
    s = perf_counter_ns(); r = real(self, *a, **k); spent_explaining.append(perf_counter_ns() - s); return r
order = [("off", none), ("on", timed)] * 4
desk = InsightDesk(service)
core = service.machine.cache.core
waited = 0
for label, f in order:
    Explaining.certificate = f
    samples = out.setdefault(label, [])
    for i, body in enumerate(bodies * 2):
        if i % 20 == 0:
            core.change_count += 1; core._tried.clear()   # something has changed
        s = perf_counter_ns()
        r = service.filter_nodes(decode_args(body, FilterArgs))
        samples.append(perf_counter_ns() - s)
        if r.failed_nodes: waited += 1
print("answers that wait", waited, r.failed_nodes)
for label, s in out.items():
    a = np.array(s) / 1e3
    print(label, "n", len(a), "p50 %.0f us p90 %.0f p99 %.0f max %.0f mean %.0f" % (*np.percentile(a, [50, 90, 99]), a.max(), a.mean()))
a = np.array(spent_explaining) / 1e3
print("certificate p50 %.1f us p99 %.0f max %.0f; new ones %d" % (*np.percentile(a, [50, 99]), a.max(), (a > 300).sum()))
Explaining.certificate = real
s = time.perf_counter(); view = desk._look(); print("view %.3f s, %d waiting" % (time.perf_counter() - s, len(view.snapshot.waiting)))
s = time.perf_counter(); view = desk._look(); print("view again %.3f s" % (time.perf_counter() - s))
s = time.perf_counter(); print(len(desk.nodes()[1]), "nodes %.3f s" % (time.perf_counter() - s))
s = time.perf_counter(); w = desk.why(view.jobs[0].job.name); print("why %.3f s" % (time.perf_counter() - s), w.certificate.sentence, [u.change for u in w.certificate.unblock])
service.close()
