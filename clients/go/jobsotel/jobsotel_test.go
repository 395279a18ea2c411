package jobsotel

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.org/jobs"
)

var ctx = context.Background()

type mailArgs struct{}

func (mailArgs) Kind() string { return "mail" }

// record is what records the spans of a test.
func record(t *testing.T) *tracetest.SpanRecorder {
	recorder := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)))
	return recorder
}

// insert inserts a job within a trace, and returns its meta.
func insert(t *testing.T, meta map[string]any) (inserted map[string]any) {
	ctx, parent := otel.Tracer("test").Start(ctx, "request")
	defer parent.End()
	job := jobs.NewJob{Args: mailArgs{}, InsertOpts: jobs.InsertOpts{Queue: "q", Meta: meta}}
	_, err := AroundInsert(func(_ context.Context, _ jobs.DB, list []jobs.NewJob) ([]jobs.Inserted, error) {
		inserted = list[0].Meta
		return nil, nil
	})(ctx, nil, []jobs.NewJob{job})
	if err != nil || len(job.Meta) != len(meta) {
		t.Errorf("%v; the caller's meta is %v", err, job.Meta)
	}
	return inserted
}

func work(meta map[string]any, attempt int, handler func() (any, error)) {
	AroundWork(func(context.Context, *jobs.JobRow) (any, error) { return handler() })(
		ctx, &jobs.JobRow{ID: 7, Kind: "mail", Queue: "q", Attempt: attempt, Meta: meta})
}

func returns(output any, err error) func() (any, error) {
	return func() (any, error) { return output, err }
}

func attributes(span sdk.ReadOnlySpan) map[string]any {
	found := map[string]any{}
	for _, one := range span.Attributes() {
		found[string(one.Key)] = one.Value.AsInterface()
	}
	return found
}

func TestAFirstAttemptIsAChildOfTheInsert(t *testing.T) {
	recorder := record(t)
	meta := insert(t, map[string]any{"mine": 1})
	if meta["mine"] != 1 || meta["traceparent"] == nil {
		t.Errorf("%v", meta)
	}
	work(meta, 1, returns(nil, nil))
	sent, request, worked := recorder.Ended()[0], recorder.Ended()[1], recorder.Ended()[2]
	if sent.Name() != "insert q" || sent.SpanKind() != trace.SpanKindProducer || sent.Parent().SpanID() != request.SpanContext().SpanID() {
		t.Errorf("%v", sent)
	}
	if worked.Name() != "work q" || worked.SpanKind() != trace.SpanKindConsumer || worked.Parent().SpanID() != sent.SpanContext().SpanID() {
		t.Errorf("%v", worked)
	}
	for name, want := range map[string]any{"messaging.system": "postgres_jobs", "messaging.operation.name": "work",
		"messaging.operation.type": "process", "messaging.destination.name": "q", "messaging.message.id": "7",
		"jobs.kind": "mail", "jobs.attempt": int64(1)} {
		if got := attributes(worked)[name]; got != want {
			t.Errorf("%s is %v", name, got)
		}
	}
	if got := attributes(sent); got["messaging.operation.type"] != "send" || got["messaging.batch.message_count"] != int64(1) {
		t.Errorf("%v", got)
	}
}

func TestARetryHasALink(t *testing.T) {
	recorder := record(t)
	work(insert(t, nil), 2, returns(nil, nil))
	sent, worked := recorder.Ended()[0], recorder.Ended()[2]
	if worked.Parent().IsValid() || len(worked.Links()) != 1 || worked.Links()[0].SpanContext.SpanID() != sent.SpanContext().SpanID() {
		t.Errorf("%v", worked)
	}
}

func TestAJobOfSomebodyElse(t *testing.T) {
	recorder := record(t)
	work(map[string]any{"traceparent": "none", "n": 1}, 1, returns(nil, nil))
	work(nil, 2, returns(nil, nil))
	for _, worked := range recorder.Ended() {
		if worked.Parent().IsValid() || len(worked.Links()) != 0 {
			t.Errorf("%v", worked)
		}
	}
}

func TestTheStatus(t *testing.T) {
	for name, one := range map[string]struct {
		handler func() (any, error)
		want    string // the type of the error; "" is none
	}{
		"returns":        {returns(1, nil), ""},
		"snoozes":        {returns(nil, jobs.Snooze(time.Second)), ""},
		"cancels":        {returns(nil, jobs.Cancel("c")), ""},
		"fails":          {returns(nil, errors.New("e")), "errors.errorString"},
		"discards":       {returns(nil, jobs.Discard(errors.New("d"))), "errors.errorString"},
		"retries":        {returns(nil, jobs.RetryIn(time.Second, errors.New("r"))), "errors.errorString"},
		"has no JSON":    {returns(math.NaN(), nil), "invalid_output"},
		"ends goroutine": {func() (any, error) { runtime.Goexit(); return nil, nil }, "panic"},
		"panics":         {func() (any, error) { panic("of middleware") }, "panic"},
	} {
		recorder, ended := record(t), make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { recover() }()
			work(nil, 1, one.handler)
		}()
		<-ended
		checkError(t, name, recorder.Ended()[0], one.want)
	}
}

func TestARefusedInsert(t *testing.T) {
	recorder := record(t)
	refused := errors.New("e")
	_, err := AroundInsert(func(context.Context, jobs.DB, []jobs.NewJob) ([]jobs.Inserted, error) {
		return nil, refused
	})(ctx, nil, nil)
	if err != refused {
		t.Errorf("%v", err)
	}
	checkError(t, "insert", recorder.Ended()[0], "errors.errorString")
}

// checkError checks whether the span has an error of this type; "" is none.
func checkError(t *testing.T, name string, span sdk.ReadOnlySpan, want string) {
	got, _ := attributes(span)["error.type"].(string)
	if got != want || (span.Status().Code == codes.Error) != (want != "") {
		t.Errorf("%s: %v with type %q, not %q", name, span.Status(), got, want)
	}
}
