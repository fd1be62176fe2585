package provider

import (
	"math"
	"testing"
)

func TestUploadsFitIntoTheMemoryLimit(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		limit      int64
		most, want int
	}{
		{math.MaxInt64, 4, 4}, {math.MaxInt64, 0, 4}, {64 << 20, 4, 1}, {80 << 20, 4, 2}, {10 << 20, 4, 1}, {1 << 30, 16, 16},
	} {
		if got := uploadsWithin(c.limit, c.most); got != c.want {
			t.Errorf("%d MiB, at most %d: %d uploads, want %d", c.limit>>20, c.most, got, c.want)
		}
	}
}
