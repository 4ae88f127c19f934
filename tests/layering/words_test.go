package layering

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The last column of the glossary in DESIGN.md lists words that say what another word says already.
func TestCommentsAndDocumentsUseTheWordsOfTheGlossary(t *testing.T) {
	_, glossary, _ := strings.Cut(read(t, "DESIGN.md"), "\n## Words\n")
	glossary, _, _ = strings.Cut(glossary, "\n## ")
	var words []string
	for line := range strings.Lines(glossary) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) == 3 && strings.HasPrefix(line, "| ") {
			for _, m := range regexp.MustCompile("`([a-z -]+)`").FindAllStringSubmatch(cells[2], -1) {
				words = append(words, m[1])
			}
		}
	}
	if len(words) < 10 {
		t.Fatalf("words in the last column of the glossary: %q", words)
	}
	whole := regexp.MustCompile(`(?i)\b(` + strings.Join(words, "|") + `)\b`)
	unwanted := func(text string) []string {
		lower := strings.ToLower(text)
		if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(lower, word) }) {
			return nil // as a rule; to say so by the expression takes fifty times as long
		}
		return whole.FindAllString(text, -1)
	}
	for _, document := range documents(t) {
		if document == "CHANGELOG.md" {
			continue // it has old names
		}
		text := strings.Replace(read(t, document), glossary, "", 1)
		for _, found := range unwanted(text) {
			t.Errorf("%s says %q; see the glossary in DESIGN.md", document, found)
		}
	}
	for _, file := range sources(t).parsed {
		for _, comment := range file.Comments {
			for _, found := range unwanted(strings.Join(strings.Fields(comment.Text()), " ")) {
				t.Errorf("%v: the comment says %q; see the glossary in DESIGN.md",
					sources(t).fset.Position(comment.Pos()), found)
			}
		}
	}
}
