//go:build tools

// Package tools names the programs that are built from the modules pinned in go.mod.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
