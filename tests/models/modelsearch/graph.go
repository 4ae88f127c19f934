package modelsearch

// stuck returns a state from which no finished one can be reached.
func (s *search[S]) stuck() (int32, bool) {
	into := newAdjacency(len(s.parents), s.to, s.from)
	good := append([]bool(nil), s.finished...)
	var todo []int32
	for n := range good {
		if good[n] {
			todo = append(todo, int32(n))
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range into.of(n) {
			if !good[from] {
				good[from] = true
				todo = append(todo, from)
			}
		}
	}
	for n := range good {
		if !good[n] {
			return int32(n), true
		}
	}
	return 0, false
}

// repeats returns a state on a cycle through a step that must not be on one.
func (s *search[S]) repeats() (int32, bool) {
	component := s.components()
	for k, again := range s.again {
		if again && component[s.from[k]] == component[s.to[k]] {
			return s.from[k], true
		}
	}
	return 0, false
}

// components numbers the strongly connected components (Tarjan's algorithm, without recursion).
func (s *search[S]) components() []int32 {
	count := len(s.parents)
	out := newAdjacency(count, s.from, s.to)
	index := make([]int32, count) // from 1, in order of discovery
	low := make([]int32, count)   // once the component is known: its first index, negated
	var path, open []int32
	edge := append([]int32(nil), out.first[:count]...)
	found := int32(0)
	for root := range int32(count) {
		if index[root] != 0 {
			continue
		}
		path = append(path, root)
		for len(path) > 0 {
			n := path[len(path)-1]
			if index[n] == 0 {
				found++
				index[n], low[n] = found, found
				open = append(open, n)
			}
			if edge[n] < out.first[n+1] {
				to := out.edges[edge[n]]
				edge[n]++
				if index[to] == 0 {
					path = append(path, to)
				} else if low[to] > 0 {
					low[n] = min(low[n], index[to])
				}
				continue
			}
			path = path[:len(path)-1]
			if low[n] == index[n] {
				for {
					last := open[len(open)-1]
					open = open[:len(open)-1]
					low[last] = -index[n]
					if last == n {
						break
					}
				}
			}
			if len(path) > 0 && low[n] > 0 {
				parent := path[len(path)-1]
				low[parent] = min(low[parent], low[n])
			}
		}
	}
	return low
}

// An adjacency lists the edges of each node.
type adjacency struct{ first, edges []int32 }

func newAdjacency(count int, from, to []int32) adjacency {
	a := adjacency{make([]int32, count+1), make([]int32, len(to))}
	for _, n := range from {
		a.first[n+1]++
	}
	for n := range count {
		a.first[n+1] += a.first[n]
	}
	next := append([]int32(nil), a.first[:count]...)
	for k, n := range from {
		a.edges[next[n]] = to[k]
		next[n]++
	}
	return a
}

func (a adjacency) of(n int32) []int32 { return a.edges[a.first[n]:a.first[n+1]] }
