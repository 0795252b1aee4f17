//go:build tools

// Package tools names the programs that are built from the modules pinned in go.mod.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
