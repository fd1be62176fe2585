package omni

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// epochSize is the length of what stands before the store's own bookmark.
const epochSize = 4

// bookmarks marks each bookmark that is handed out with an epoch, so that all
// of an earlier epoch can be declared stale, as compaction of etcd does.
type bookmarks struct{ epoch atomic.Uint32 }

// StaleBookmarks makes all bookmarks handed out so far stale: a watch that is
// resumed from one fails with FailedPrecondition.
func (s *Server) StaleBookmarks() { s.bookmarks.epoch.Add(1) }

// open takes the epoch off the bookmark of a watch request.
func (b *bookmarks) open(request any) error {
	watch, ok := request.(*v1alpha1.WatchRequest)
	if !ok || watch.GetOptions().GetStartFromBookmark() == nil {
		return nil
	}

	mark := watch.GetOptions().GetStartFromBookmark()
	if len(mark) < epochSize || binary.BigEndian.Uint32(mark) != b.epoch.Load() {
		return status.Error(codes.FailedPrecondition, "invalid watch bookmark")
	}

	watch.Options.StartFromBookmark = mark[epochSize:]

	return nil
}

// stamp puts the epoch on the bookmarks of a watch response.
func (b *bookmarks) stamp(response any) {
	events, ok := response.(*v1alpha1.WatchResponse)
	if !ok {
		return
	}

	for _, event := range events.GetEvent() {
		if mark := event.GetBookmark(); mark != nil {
			event.Bookmark = append(binary.BigEndian.AppendUint32(nil, b.epoch.Load()), mark...)
		}
	}
}
