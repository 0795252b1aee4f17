"""The lab: experiments that show HiveD's guarantees on an embedded cluster and check them.

An experiment is a folder with an `experiment.yaml` (what it shows, and its steps), a configuration and job files; the
runner knows none of them by name. Checks read the API server's pods and the service's inspect paths, nothing else: what
a person with kubectl and curl could see.
"""
