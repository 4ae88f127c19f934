package main

import (
	"encoding/xml"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
)

func TestChartHandlesMissingZeroAndHugeValues(t *testing.T) {
	drawn := svgTexts(t, chart(extremeResults())) // well-formed, all on the canvas
	for _, want := range []string{"<script> & `code`", "50.0 ×", "nought upstream", "0.00 ×", "huge", "1e+303 ×",
		"1 member", "3 members"} {
		if !drawn[want] {
			t.Errorf("the chart lacks %q: %v", want, drawn)
		}
	}
	for text := range drawn {
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("the chart says %q", text)
		}
	}
	if !svgTexts(t, chart(nil))["1 member"] {
		t.Error("a chart of nothing has no legend")
	}
}

// svgTexts returns all texts of an SVG. It fails the test if the SVG is malformed or a coordinate is implausible.
func svgTexts(t *testing.T, svg string) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := dec.Token()
		if err == io.EOF {
			return all
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.CharData:
			all[string(token)] = true
		case xml.StartElement:
			for _, a := range token.Attr {
				switch a.Name.Local {
				case "x", "y", "x1", "x2", "y1", "y2", "width", "height":
					v, err := strconv.ParseFloat(a.Value, 64)
					if err != nil || v < 0 || v > 1e4 || math.IsNaN(v) {
						t.Errorf("<%s %s=%q>", token.Name.Local, a.Name.Local, a.Value)
					}
				}
			}
		}
	}
}
