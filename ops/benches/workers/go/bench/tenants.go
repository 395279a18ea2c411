package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tenant is what the args of a tenant's job have besides.
type Tenant struct {
	Number  int     `json:"number"`
	Sent    float64 `json:"sent"`
	Sleep   int     `json:"sleep"`
	Payload string  `json:"payload"`
}

// The mix of jobs of the scenarios noisy_neighbor and noisy_neighbor_saturated of the public
// queue-benchmark: how many of a hundred jobs sleep for how many milliseconds (least and most), and
// carry how many bytes.
var mix = []struct{ share, least, most, bytes, mostBytes int }{
	{60, 5, 30, 128, 512},
	{20, 20, 150, 256, 1024},
	{15, 100, 800, 256, 1024},
	{5, 1000, 5000, 1024, 4096},
}

// serveTenants inserts `rate` jobs a second and works on them meanwhile. Of a hundred jobs, `noisy`
// belong to one tenant, the others to nine. It prints how many jobs a second were completed, and
// the 95th percentile of the time in ms that jobs of the noisy tenant and of the others waited for
// a handler.
func (p Program) serveTenants(rate, noisy, concurrency int, duration time.Duration) error {
	var mutex sync.Mutex
	var waits [2][]float64
	completed := 0
	failed := make(chan error)
	go func() {
		failed <- p.Work(concurrency, func(_ context.Context, args Args) error {
			tenant := args.Tenant
			waited := 1000 * (now() - tenant.Sent)
			time.Sleep(time.Duration(tenant.Sleep) * time.Millisecond)
			mutex.Lock()
			defer mutex.Unlock()
			of := &waits[min(tenant.Number, 1)]
			*of = append(*of, waited)
			completed++
			return nil
		})
	}()
	random := rand.New(rand.NewPCG(1, 1)) // the same jobs for all
	ticks := time.NewTicker(time.Second / time.Duration(rate))
	end := time.After(duration)
	for user := fresh(); ; user++ {
		select {
		case <-ticks.C:
		case err := <-failed:
			return fmt.Errorf("the worker ended: %w", err)
		case <-end:
			mutex.Lock()
			say(map[string]float64{
				"completed": float64(completed) / duration.Seconds(), "noisy": p95(waits[0]), "others": p95(waits[1]),
			})
			return nil
		}
		args := Welcome(user)
		args.Tenant = tenant(random, noisy)
		go func() {
			if err := p.Insert(args, false); err != nil {
				failed <- err
			}
		}()
	}
}

func tenant(random *rand.Rand, noisy int) *Tenant {
	made := &Tenant{Sent: now()}
	if random.IntN(100) >= noisy {
		made.Number = 1 + random.IntN(9)
	}
	of := random.IntN(100)
	for _, class := range mix {
		if of < class.share {
			made.Sleep = class.least + random.IntN(class.most-class.least+1)
			made.Payload = strings.Repeat("x", class.bytes+random.IntN(class.mostBytes-class.bytes+1))
			return made
		}
		of -= class.share
	}
	panic("the shares are a hundred")
}

func p95(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)*95/100]
}
