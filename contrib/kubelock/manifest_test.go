package kubelock_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// manifestIn returns a guide and the manifest in it.
func manifestIn(t *testing.T, name string) (guide, manifest string) {
	t.Helper()
	b, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	_, manifest, _ = strings.Cut(string(b), "```yaml\n")
	manifest, _, _ = strings.Cut(manifest, "```")
	return string(b), manifest
}

// The manifest in the guide has fields that exist, probes that the program in the guide serves, and a grace period that
// is long enough for it. Go caches the result although the guide has changed: it is outside of this module.
func TestManifestInTheGuide(t *testing.T) {
	guide, manifest := manifestIn(t, "kubernetes.md")
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
	} {
		if !strings.Contains(guide, `probes.Handle("`+path+`"`) || path == "/leader" {
			t.Errorf("%s probe %q", what, path)
		}
	}
}

// A Job that is late, or tried again, must not run the command once more.
func TestCronJobInTheGuide(t *testing.T) {
	_, manifest := manifestIn(t, "cron.md")
	var c batchv1.CronJob
	if err := yaml.UnmarshalStrict([]byte(manifest), &c); err != nil {
		t.Fatal(err)
	}
	command := c.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Command
	i := slices.Index(command, "--min-hold")
	if i < 0 || command[0] != "holdfast" || slices.Index(command, "--skip-code") < 0 {
		t.Fatalf("%q", command)
	}
	minHold, err := time.ParseDuration(command[i+1])
	if err != nil || time.Duration(*c.Spec.StartingDeadlineSeconds)*time.Second >= minHold {
		t.Errorf("min-hold %v, %v; a start may be late by %d s", minHold, err, *c.Spec.StartingDeadlineSeconds)
	}
	if *c.Spec.JobTemplate.Spec.BackoffLimit != 0 || c.Spec.TimeZone == nil ||
		c.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy != "Never" {
		t.Errorf("%+v", c.Spec)
	}
}
