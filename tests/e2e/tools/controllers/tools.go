//go:build tools

// Package tools names the controllers that are built from the modules pinned in go.mod.
package tools

import (
	_ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"
	_ "github.com/kubeflow/training-operator/cmd/training-operator.v1"
	_ "github.com/ray-project/kuberay/ray-operator"
	_ "sigs.k8s.io/jobset"
	_ "sigs.k8s.io/lws/cmd"
)
