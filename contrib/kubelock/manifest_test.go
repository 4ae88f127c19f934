package kubelock_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// The manifest in the guide has fields that exist, probes that the program in the guide serves, and a grace period that
// is long enough for it. Go caches the result although the guide has changed: it is outside of this module.
func TestManifestInTheGuide(t *testing.T) {
	b, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := string(b)
	_, manifest, _ := strings.Cut(guide, "```yaml\n")
	manifest, _, _ = strings.Cut(manifest, "```")
	parts := strings.Split(manifest, "\n---\n")
	if len(parts) != 2 {
		t.Fatalf("%d objects", len(parts))
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(parts[0]), &d); err != nil {
		t.Fatal(err)
	}
	var budget policyv1.PodDisruptionBudget
	if err := yaml.UnmarshalStrict([]byte(parts[1]), &budget); err != nil {
		t.Fatal(err)
	}
	labels := d.Spec.Template.Labels
	if d.Spec.Selector.MatchLabels["app"] != labels["app"] || budget.Spec.Selector.MatchLabels["app"] != labels["app"] {
		t.Errorf("selectors do not match the pods' labels %v", labels)
	}

	pod := d.Spec.Template.Spec
	m := regexp.MustCompile(`DrainTimeout: (\d+) \* time\.Second`).FindStringSubmatch(guide)
	if m == nil {
		t.Fatal("the program sets no DrainTimeout")
	}
	drain, err := time.ParseDuration(m[1] + "s")
	if err != nil {
		t.Fatal(err)
	}
	const closeTimeout = 5 * time.Second // the default
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace <= drain+closeTimeout {
		t.Errorf("grace period %v, DrainTimeout %v", grace, drain)
	}
	c := pod.Containers[0]
	for what, path := range map[string]string{
		"startup":   c.StartupProbe.HTTPGet.Path,
		"readiness": c.ReadinessProbe.HTTPGet.Path,
		"liveness":  c.LivenessProbe.HTTPGet.Path,
	} {
		if !strings.Contains(guide, `probes.Handle("`+path+`"`) || path == "/leader" {
			t.Errorf("%s probe %q", what, path)
		}
	}
}
