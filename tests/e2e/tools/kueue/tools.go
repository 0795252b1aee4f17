//go:build tools

// Package tools names the controller of Kueue's queues, which has libraries of its own age.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
