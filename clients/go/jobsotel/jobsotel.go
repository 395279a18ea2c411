// Package jobsotel is OpenTelemetry middleware: a span for every insert and every attempt, by the
// messaging conventions.
//
//	producer.Around = append(producer.Around, jobsotel.AroundInsert)
//	options.Around = append(options.Around, jobsotel.AroundWork)
//
// The producer's span travels as traceparent in meta. A first attempt is its child; a retry starts
// a new trace with a link to it. A span fails if its insert or attempt fails.
package jobsotel

import (
	"context"
	"errors"
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"example.org/jobs"
)

var propagator = propagation.TraceContext{}

// AroundInsert is middleware for a [jobs.Producer].
func AroundInsert(next jobs.InsertFunc) jobs.InsertFunc {
	return func(ctx context.Context, db jobs.DB, list []jobs.NewJob) ([]jobs.Inserted, error) {
		queue := "default"
		if len(list) > 0 && list[0].Queue != "" {
			queue = list[0].Queue
		}
		ctx, span := start(ctx, "insert", "send", queue, trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(attribute.Int("messaging.batch.message_count", len(list))))
		defer span.End()
		traced := append([]jobs.NewJob(nil), list...)
		for i := range traced {
			meta := carrier{}
			for name, value := range traced[i].Meta {
				meta[name] = value
			}
			propagator.Inject(ctx, meta)
			traced[i].Meta = meta
		}
		inserted, err := next(ctx, db, traced)
		fail(span, err)
		return inserted, err
	}
}

// AroundWork is middleware for a worker. A span fails if its attempt fails. The status stays unset
// if the job is snoozed, cancelled, released at a stop or lost.
func AroundWork(next jobs.Work) jobs.Work {
	return func(ctx context.Context, job *jobs.JobRow) (any, error) {
		options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.String("messaging.message.id", strconv.FormatInt(job.ID, 10)),
			attribute.String("jobs.kind", job.Kind), attribute.Int("jobs.attempt", job.Attempt))}
		sent := propagator.Extract(ctx, carrier(job.Meta))
		if sender := trace.LinkFromContext(sent); job.Attempt == 1 {
			ctx = sent
		} else if sender.SpanContext.IsValid() {
			options = append(options, trace.WithLinks(sender))
		}
		ctx, span := start(ctx, "work", "process", job.Queue, options...)
		defer span.End()
		var output any
		err := errPanic
		defer func() { fail(span, jobs.AttemptFailure(job, output, err)) }()
		output, err = next(ctx, job)
		return output, err
	}
}

// carrier is the meta of a job, in which the trace context travels.
type carrier map[string]any

func (c carrier) Get(name string) string {
	text, _ := c[name].(string)
	return text
}

func (c carrier) Set(name, text string) { c[name] = text }

func (c carrier) Keys() (names []string) {
	for name := range c {
		names = append(names, name)
	}
	return names
}

func start(ctx context.Context, name, kind, queue string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	tracer := otel.Tracer("postgres_jobs", trace.WithInstrumentationVersion(jobs.Version))
	return tracer.Start(ctx, name+" "+queue, append(options, trace.WithAttributes(
		attribute.String("messaging.system", "postgres_jobs"),
		attribute.String("messaging.operation.name", name),
		attribute.String("messaging.operation.type", kind),
		attribute.String("messaging.destination.name", queue)))...)
}

// errPanic is the error of a handler that does not return. The worker fails the attempt with type
// panic.
var errPanic = errors.New("the handler ended its goroutine, or middleware panicked")

func fail(span trace.Span, err error) {
	if err == nil {
		return
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
	name := "panic"
	if err != errPanic {
		name = jobs.ErrorType(err)
	}
	span.SetAttributes(attribute.String("error.type", name))
}
