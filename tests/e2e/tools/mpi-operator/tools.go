//go:build tools

// Package tools names the operator of MPIJobs, which needs older libraries than the other controllers.
package tools

import _ "github.com/kubeflow/mpi-operator/cmd/mpi-operator"
