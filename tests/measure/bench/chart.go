package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// The layout of the chart, in pixels.
const (
	chartWidth = 860
	nameWidth  = 250 // left of the bars
	endWidth   = 80  // right of the bars, for their figures
	barHeight  = 13
	gap        = 9 // between subjects
	headHeight = 76
	footHeight = 30

	decadeMin, decadeMax = -1, 3 // the axis in powers of ten; longer bars are cut off
)

// palette maps a cluster size to the color of its bars. These colors and the gray of the text are legible on white and
// on black.
var palette = map[int]string{1: "#3b82c4", 3: "#d9822b"}

const ink, faint = "#7a7a7a", "#9a9a9a"

// chart returns an SVG that shows how many times faster than upstream holdfast is, for each subject with a chart label
// that was measured on both sides.
func chart(results []result) string {
	groups := grouped(results)
	var b strings.Builder
	height := headHeight + footHeight
	for _, g := range groups {
		height += len(g)*barHeight + gap
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif" font-size="12">`+"\n", chartWidth, height)
	label(&b, 16, 24, "start", "How many times faster than etcd's concurrency package (upstream)",
		`font-size="15" font-weight="bold"`)
	legend(&b)
	axis(&b, height)
	y := headHeight
	for _, g := range groups {
		label(&b, nameWidth-10, y+len(g)*barHeight/2+4, "end", g[0].short, "")
		for _, r := range g {
			bar(&b, y, palette[r.size], ratio(r.sides["upstream"], r.sides["holdfast"]))
			y += barHeight
		}
		y += gap
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// grouped returns the results for the chart, grouped by subject.
func grouped(results []result) [][]result {
	var groups [][]result
	for _, r := range results {
		if r.short == "" || ratio(r.sides["upstream"], r.sides["holdfast"]).n == 0 {
			continue
		}
		if n := len(groups); n > 0 && groups[n-1][0].name == r.name {
			groups[n-1] = append(groups[n-1], r)
		} else {
			groups = append(groups, []result{r})
		}
	}
	return groups
}

func legend(b *strings.Builder) {
	x := 16
	for _, size := range []int{1, 3} {
		rect(b, x, 38, 12, 12, palette[size])
		text := fmt.Sprintf("%d members", size)
		if size == 1 {
			text = "1 member"
		}
		label(b, x+18, 48, "start", text, "")
		x += 110
	}
	label(b, x, 48, "start", "right of 1: faster; left: slower. Logarithmic.", "")
}

func axis(b *strings.Builder, height int) {
	for decade := decadeMin; decade <= decadeMax; decade++ {
		x, color := axisX(math.Pow10(decade)), faint
		if decade == 0 {
			color = ink
		}
		fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="%s"/>`+"\n",
			x, headHeight-8, x, height-footHeight+4, color, map[bool]string{true: "1.5", false: "0.4"}[decade == 0])
		label(b, x, height-footHeight+20, "middle", fmt.Sprint(math.Pow10(decade)), "")
	}
}

// bar draws a bar from 1 to the ratio, and the figure at its end.
func bar(b *strings.Builder, y int, color string, r spread) {
	from, to := axisX(1), axisX(r.median)
	rect(b, min(from, to), y+1, max(1, max(from, to)-min(from, to)), barHeight-2, color)
	label(b, max(from, to)+6, y+barHeight-2, "start", formatNumber(r.median)+" ×", `font-size="11"`)
}

// axisX returns the x coordinate of a ratio.
func axisX(ratio float64) int {
	decade := math.Log10(ratio) // -Inf for 0
	decade = max(decadeMin, min(decadeMax, decade))
	return nameWidth + int(math.Round((decade-decadeMin)/(decadeMax-decadeMin)*(chartWidth-nameWidth-endWidth)))
}

func rect(b *strings.Builder, x, y, width, height int, color string) {
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", x, y, width, height, color)
}

func label(b *strings.Builder, x, y int, anchor, text, more string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s" fill="%s" %s>`, x, y, anchor, ink, more)
	_ = xml.EscapeText(b, []byte(text)) // writing to a Builder never fails
	b.WriteString("</text>\n")
}
