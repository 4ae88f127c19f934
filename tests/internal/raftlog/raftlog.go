// Package raftlog reads the Raft logs of a cluster: which member led at which term, and which revoked a lease.
package raftlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"
)

// A Log is what etcd itself has written to disk about its leaders and about the
// leases that it revoked.
type Log struct {
	leaders map[uint64]uint16 // by term
	revokes map[clientv3.LeaseID]revocation
}

// A revocation is a LeaseRevoke in the log, which etcd's leader also uses for a lease
// that has expired. A member is told by the last two bytes of its ID, with which it
// begins the IDs of its requests.
type revocation struct {
	proposer    uint16
	term, index uint64
}

// Early reports whether the lease was revoked by a member that was not the leader, and explains that. Only the leader
// knows of all renewals.
func (l *Log) Early(id clientv3.LeaseID) (early bool, why string, err error) {
	r, ok := l.revokes[id]
	leader := l.leaders[r.term]
	if !ok || leader == 0 {
		return false, "", fmt.Errorf("lease %x: etcd's log has no revocation or no leader of its term: %+v", int64(id), r)
	}
	why = fmt.Sprintf("revoked by member %x at term %d, whose leader was %x", r.proposer, r.term, leader)
	return r.proposer != leader, why, nil
}

// Deposed reports whether the log has a revocation of the lease, by a member that was not the leader.
func (l *Log) Deposed(id clientv3.LeaseID) bool {
	r, ok := l.revokes[id]
	return ok && r.proposer != l.leaders[r.term]
}

// Lines tells who led at which term, and which member revoked which lease.
func (l *Log) Lines() (lines []string) {
	for _, term := range slices.Sorted(maps.Keys(l.leaders)) {
		lines = append(lines, fmt.Sprintf("term %d: member %x led", term, l.leaders[term]))
	}
	for _, id := range slices.SortedFunc(maps.Keys(l.revokes), func(a, b clientv3.LeaseID) int {
		return cmp.Compare(l.revokes[a].index, l.revokes[b].index)
	}) {
		r := l.revokes[id]
		lines = append(lines,
			fmt.Sprintf("index %d, term %d: member %x revoked lease %x", r.index, r.term, r.proposer, int64(id)))
	}
	return lines
}

// Read reads the logs of a cluster whose etcdtest.Options.Dir is dir. Members may be running. The log that is furthest
// has every entry that was committed, but that of a member which came later begins with a snapshot: what is before that
// has the next one.
func Read(dir string) (*Log, error) {
	dirs, err := filepath.Glob(filepath.Join(dir, "*", "member", "wal"))
	if err != nil {
		return nil, err
	}
	var logs []memberLog
	all := &Log{leaders: make(map[uint64]uint16), revokes: make(map[clientv3.LeaseID]revocation)}
	votes := make(map[[2]uint64]int) // by term and candidate
	for _, dir := range dirs {
		log, err := readMember(dir)
		if err != nil {
			return nil, err
		}
		for term, candidate := range log.votes {
			if votes[[2]uint64{term, candidate}]++; votes[[2]uint64{term, candidate}] == len(dirs)/2+1 {
				all.leaders[term] = uint16(candidate)
			}
		}
		logs = append(logs, log)
	}
	all.addRevokes(logs)
	return all, nil
}

func (l *Log) addRevokes(logs []memberLog) {
	furthestFirst := func(a, b memberLog) int {
		return cmp.Or(cmp.Compare(b.term, a.term), cmp.Compare(b.last, a.last), cmp.Compare(a.first, b.first))
	}
	known := uint64(math.MaxUint64) // all from there on
	for _, log := range slices.SortedFunc(slices.Values(logs), furthestFirst) {
		for r, id := range log.revokes {
			if first, ok := l.revokes[id]; r.index < known && (!ok || r.index < first.index) {
				l.revokes[id] = r
			}
		}
		if log.first > 0 {
			known = min(known, log.first)
		}
	}
}

// A memberLog is the log of one member.
type memberLog struct {
	votes      map[uint64]uint64 // by term
	term, last uint64            // of the last entry
	first      uint64            // index of the first entry; 0 if there is none
	revokes    map[revocation]clientv3.LeaseID
}

func readMember(dir string) (memberLog, error) {
	log := memberLog{votes: make(map[uint64]uint64), revokes: make(map[revocation]clientv3.LeaseID)}
	names, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil {
		return log, err
	}
	var files []fileutil.FileReader
	for _, name := range names { // in order of their numbers
		f, err := os.Open(name)
		if err != nil {
			return log, err
		}
		defer f.Close()
		files = append(files, fileutil.NewFileReader(f))
	}
	decoder := wal.NewDecoder(files...)
	var rec walpb.Record
	for err = decoder.Decode(&rec); err == nil; err = decoder.Decode(&rec) {
		switch rec.GetType() {
		case wal.CrcType:
			decoder.UpdateCRC(rec.GetCrc())
		case wal.StateType:
			if s := wal.MustUnmarshalState(rec.Data); s.GetVote() != 0 {
				log.votes[s.GetTerm()] = s.GetVote()
			}
		case wal.EntryType:
			e := wal.MustUnmarshalEntry(rec.Data)
			log.append(e.GetTerm(), e.GetIndex(), e.GetData())
		}
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) { // an unfinished record
		return log, err
	}
	return log, nil
}

// append adds an entry, which replaces those from its index on.
func (l *memberLog) append(term, index uint64, data []byte) {
	if l.first == 0 {
		l.first = index
	}
	l.term, l.last = term, index
	maps.DeleteFunc(l.revokes, func(r revocation, _ clientv3.LeaseID) bool { return r.index >= index })
	var req pb.InternalRaftRequest
	if proto.Unmarshal(data, &req) == nil && req.GetLeaseRevoke() != nil {
		r := revocation{proposer: uint16(req.GetHeader().GetID() >> 48), term: term, index: index}
		l.revokes[r] = clientv3.LeaseID(req.GetLeaseRevoke().GetID())
	}
}
