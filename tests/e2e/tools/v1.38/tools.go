//go:build tools

// Package tools pins a beta of Kubernetes, whose types are read. It cannot be built: a module that its API server needs
// is not served.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
)
