module hived/tests/e2e/tools/published

go 1.26.0

require (
	github.com/NVIDIA/KAI-scheduler v0.12.0
	github.com/koordinator-sh/koordinator v1.7.0
	volcano.sh/apis v1.14.0
)
