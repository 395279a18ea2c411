package jobs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/text/unicode/norm"

	"example.org/jobs/internal/database"
)

// Cells are the databases of a program whose queues live in several cells. [Insert], [InsertMany]
// and [Producer] take it in place of a connection, and insert each job in its cell. What they have
// inserted is committed; it is atomic only within a cell.
type Cells struct {
	pools []DB
	mu    sync.Mutex
	seen  []*seen // the retired ones last
	down  error   // why another one was not reached
}

// NewCells returns the cells with these pools. A list of one can be a database without a number.
func NewCells[P *pgxpool.Pool | *sql.DB](pools ...P) *Cells {
	c := &Cells{}
	for _, pool := range pools {
		c.pools = append(c.pools, pool)
	}
	return c
}

// seen is what a database knows of cells.
type seen struct {
	Database, Identity string
	Cell               *int // its number; without one it takes everything
	IsRetired          bool
	Known              map[int]string // identities of other cells
	pool               int
	Placements         map[string]placement
}

// placement is where a queue lives, and the path that it is spread by.
type placement struct {
	By    map[string][]string
	Cells []int
}

func (s *seen) placement(queue string) placement {
	if p, isNamed := s.Placements[queue]; isNamed {
		return p
	}
	return s.Placements["*"]
}

const seeCells = `SELECT json_build_object('Database', current_database(), 'Cell', c.cell, 'Identity', c.identity,
		'IsRetired', c.retired_at IS NOT NULL, 'Placements', (SELECT json_object_agg(queue, p) FROM jobs.placements p),
		'Known', (SELECT json_object_agg(cell, identity) FROM jobs.cells WHERE NOT is_self AND identity IS NOT NULL))
	FROM (VALUES (1)) v LEFT JOIN jobs.cells c ON c.is_self`

// agree returns an error unless the databases that take jobs are cells, each its own.
func agree(databases []*seen) error {
	for i, s := range databases {
		for j, other := range databases {
			switch {
			case i == j || s == nil || other == nil || s.IsRetired || other.IsRetired:
			case s.Cell == nil:
				return database.Explain(fmt.Errorf("the database %q has no cell number", s.Database),
					"Run jobs.set_cell in it, or remove it from the list.")
			case other.Cell == nil:
			case *s.Cell == *other.Cell:
				return database.Explain(fmt.Errorf("the databases %q and %q are both cell %d", s.Database, other.Database, *s.Cell),
					"Remove one of them from the list.")
			case cmp.Or(other.Known[*s.Cell], s.Identity) != s.Identity:
				return database.Explain(fmt.Errorf("the database %q is not the cell %d that cell %d knows", s.Database, *s.Cell, *other.Cell),
					fmt.Sprintf("Check its URL. If cell %d was reinstated, call jobs.set_cell_address with its new identity in cell %d.", *s.Cell, *other.Cell))
			}
		}
	}
	return nil
}

// look asks a database about cells, for a limited time.
func look[T any](ctx context.Context, db DB, scan scan[T], call string, args ...any) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, maxPause)
	defer cancel()
	found, err := database.Query(ctx, db, scan, call, args...)
	return found, database.Advise(err, "grant_producer", db)
}

// read reads the map.
func (c *Cells) read(ctx context.Context) error {
	var all, retired []*seen
	var down error
	for i, pool := range c.pools {
		found, err := look(ctx, pool, database.JSON[*seen], seeCells)
		if err != nil && (!is(err, passing) || ctx.Err() != nil) {
			return err
		} else if err != nil {
			down = err
		} else if found[0].pool = i; found[0].IsRetired {
			retired = append(retired, found[0])
		} else {
			all = append(all, found[0])
		}
	}
	all = append(all, retired...)
	if err := agree(all); err != nil || len(all) == 0 {
		return cmp.Or(err, down, errors.New("jobs: Cells must have at least one database"))
	}
	c.seen, c.down = all, down
	return nil
}

// place returns the pool of each job. It reads the map again if that may be old.
func (c *Cells) place(ctx context.Context, jobs []NewJob, refused int) (homes []int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for isNew := c.seen == nil || refused >= 0; ; isNew = true {
		if isNew {
			err = c.read(ctx)
		}
		if err == nil {
			homes, err = c.homes(ctx, jobs, refused)
		}
		if err == nil || isNew {
			return homes, err
		}
	}
}

// homes returns the pool of each job. It asks the first one about cells that it does not compute,
// or the one that has refused the jobs about all; none is -1.
func (c *Cells) homes(ctx context.Context, jobs []NewJob, refused int) (homes []int, err error) {
	cells, asks, asked := make([]*int, len(jobs)), refused, []int(nil)
	if asks < 0 {
		asks = c.seen[0].pool
	}
	for i, job := range jobs {
		if refused < 0 {
			cells[i] = c.seen[0].cellOf(job)
		}
		if cells[i] == nil {
			asked = append(asked, i)
		}
	}
	if len(asked) > 0 {
		encoded, err := json.Marshal(pick(jobs, asked))
		if err != nil {
			return nil, err
		}
		answers, err := look(ctx, c.pools[asks], database.Value[*int], `
			SELECT jobs.cell_for(j->>'kind', j->'args', j->'unique_opts', j->>'queue', j->'meta')
			FROM jsonb_array_elements($1) WITH ORDINALITY t(j, n) ORDER BY n`, string(encoded))
		if err != nil {
			return nil, err
		}
		for i, cell := range answers {
			cells[asked[i]] = cell
		}
	}
	for _, cell := range cells {
		home := asks // it refuses what lives nowhere
		if cell != nil {
			at := slices.IndexFunc(c.seen, func(s *seen) bool { return s.Cell != nil && *s.Cell == *cell })
			if at < 0 {
				return nil, cmp.Or(c.down, database.Explain(fmt.Errorf("cell %d is none of the databases", *cell), "Add it to the list."))
			}
			home = c.seen[at].pool
		}
		homes = append(homes, home)
	}
	return homes, nil
}

// insertMany inserts jobs in their cells, those of each in one statement.
func (c *Cells) insertMany(ctx context.Context, jobs []NewJob) ([]Inserted, error) {
	if len(c.pools) == 1 {
		return insertMany(ctx, c.pools[0], jobs)
	}
	homes, err := c.place(ctx, jobs, -1)
	if err != nil {
		return nil, err
	}
	inserted := make([]Inserted, len(jobs))
	insert := func(home int, part []int) error {
		found, err := insertMany(ctx, c.pools[home], pick(jobs, part))
		for i, one := range found {
			inserted[part[i]] = one
		}
		return err
	}
	for _, part := range parts(homes) {
		home := homes[part[0]]
		if err = insert(home, part); sqlState(err) == "JB001" {
			again, failure := c.place(ctx, pick(jobs, part), home)
			if failure != nil || slices.Contains(again, home) {
				return nil, err
			}
			err = nil
			for _, smaller := range parts(again) {
				if err == nil {
					err = insert(again[smaller[0]], pick(part, smaller))
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return inserted, nil
}

// parts returns the numbers of the jobs of each pool, in the order of their first jobs.
func parts(homes []int) (parts [][]int) {
	for i, home := range homes {
		p := slices.IndexFunc(parts, func(part []int) bool { return homes[part[0]] == home })
		if p < 0 {
			p, parts = len(parts), append(parts, nil)
		}
		parts[p] = append(parts[p], i)
	}
	return parts
}

func pick[T any](all []T, numbers []int) (picked []T) {
	for _, i := range numbers {
		picked = append(picked, all[i])
	}
	return picked
}

// cellOf returns the cell of a job, or nil if the database must be asked.
func (s *seen) cellOf(job NewJob) *int {
	placement := s.placement(norm.NFC.String(job.Queue))
	if job.Queue == "" || len(placement.Cells) == 0 {
		return nil
	}
	for field, path := range placement.By {
		text := plain(map[string]any{"by_args": job.Args, "by_meta": job.Meta}[field], path[0])
		if text == "" {
			return nil
		}
		hash := sha256.Sum256([]byte(text))
		return &placement.Cells[binary.BigEndian.Uint64(hash[:])%uint64(len(placement.Cells))]
	}
	return &placement.Cells[0]
}

// plain returns the canonical JSON of the string or the exact integer at a path, or "".
func plain(value any, path string) string {
	encoded, err := json.Marshal(value)
	if err != nil || strings.Contains(path, `\`) || decode(encoded, &value) != nil {
		return ""
	}
	for _, name := range strings.Split(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	switch value := value.(type) {
	case json.Number:
		number, err := value.Int64()
		if text := strconv.FormatInt(number, 10); err == nil && text == string(value) && max(number, -number) < 1<<53 {
			return text
		}
	case string:
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(norm.NFC.String(value))
		// encoding/json escapes these two for JavaScript.
		escapes := strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029")
		return escapes.Replace(strings.TrimSuffix(text.String(), "\n"))
	}
	return ""
}
