//! The grid of lifecycle.md: how the end is asked for × where × what disturbs it. 5 × 11 × 9 = 495 cells, generated.
//!
//! Every cell is one exchange on simulated time. After it: one terminal transition, one `on_complete` and nothing
//! behind it, at most one head, no leak of slot, task or place in a queue, gauges at zero.

use super::*;
use crate::exchange::{AsyncContext, Read, ReadListener, WaterMarks};
use bytes::Bytes;

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    None,
    Complete,
    Redispatch,
    Dispatch,
    Panic,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Where {
    DoRequest,
    Handler,
    ReadListener,
    WriteListener,
    OnTimeout,
    OnError,
    OnComplete,
    ExecutorTask,
    ForeignBefore,
    ForeignAfter,
    AfterTerminal,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Disturbance {
    None,
    TimerSameTurn,
    Fin,
    Rst,
    HalfClose,
    WriteBlocked,
    ExecutorFull,
    ShutdownBegins,
    SecondStartAsync,
}

const ENDS: [End; 5] = [End::None, End::Complete, End::Redispatch, End::Dispatch, End::Panic];
const PLACES: [Where; 11] = [
    Where::DoRequest,
    Where::Handler,
    Where::ReadListener,
    Where::WriteListener,
    Where::OnTimeout,
    Where::OnError,
    Where::OnComplete,
    Where::ExecutorTask,
    Where::ForeignBefore,
    Where::ForeignAfter,
    Where::AfterTerminal,
];
const DISTURBANCES: [Disturbance; 9] = [
    Disturbance::None,
    Disturbance::TimerSameTurn,
    Disturbance::Fin,
    Disturbance::Rst,
    Disturbance::HalfClose,
    Disturbance::WriteBlocked,
    Disturbance::ExecutorFull,
    Disturbance::ShutdownBegins,
    Disturbance::SecondStartAsync,
];

#[derive(Debug, Clone, Copy)]
struct Cell {
    end: End,
    place: Where,
    disturbance: Disturbance,
}

/// What the callbacks of a cell have done, readable from all of them.
#[derive(Default)]
struct Record {
    callbacks: Mutex<Vec<&'static str>>,
    context: Mutex<Option<AsyncContext>>,
}

impl Record {
    fn note(&self, what: &'static str) {
        self.callbacks.lock().unwrap().push(what);
    }

    fn context(&self) -> AsyncContext {
        self.context.lock().unwrap().clone().expect("the first callback has kept it")
    }
}

/// Asks for the end in the way of the cell.
fn ask(end: End, x: &mut Exchange, record: &Arc<Record>) -> Result<()> {
    match end {
        End::None => Ok(()),
        End::Complete => x.complete(),
        End::Redispatch => x.redispatch("/second"),
        End::Dispatch => {
            let record = record.clone();
            // The answer is a value; in this grid a refused task is dropped.
            let _ = x.context().whole_exchange().dispatch(move |x: &mut Exchange| {
                record.note("dispatched");
                x.complete()
            });
            Ok(())
        }
        End::Panic => std::panic::resume_unwind(Box::new("asked for by the grid")),
    }
}

struct Reader(End, Arc<Record>);

impl ReadListener for Reader {
    fn on_data_available(&mut self, x: &mut Exchange) -> Result<()> {
        self.1.note("data");
        while let Read::Data(_) = x.read()? {}
        ask(self.0, x, &self.1)
    }
}

/// The first callback of the cell: sets everything up, and asks for the end if this is the place.
fn first(cell: Cell, x: &mut Exchange, record: &Arc<Record>) -> Result<()> {
    *record.context.lock().unwrap() = Some(x.context());
    let r = record.clone();
    x.on_complete(move |x, _| {
        r.note("complete");
        if cell.place == Where::OnComplete { ask(cell.end, x, &r) } else { Ok(()) }
    });
    let r = record.clone();
    x.on_error(move |x, _| {
        r.note("error");
        if cell.place == Where::OnError { ask(cell.end, x, &r) } else { Ok(()) }
    });
    let r = record.clone();
    x.set_timeout(Duration::from_millis(100));
    x.on_timeout(move |x| {
        r.note("timeout");
        if cell.place == Where::OnTimeout { ask(cell.end, x, &r) } else { Ok(()) }
    });
    if !matches!(cell.place, Where::Handler | Where::OnComplete | Where::AfterTerminal)
        || cell.end == End::Dispatch
        || cell.disturbance == Disturbance::SecondStartAsync
    {
        x.start_async();
    }
    if cell.disturbance == Disturbance::SecondStartAsync {
        x.start_async();
    }
    match cell.place {
        Where::DoRequest | Where::Handler => ask(cell.end, x, record)?,
        Where::ReadListener => x.set_read_listener(Reader(cell.end, record.clone())),
        Where::WriteListener => {
            let r = record.clone();
            x.set_water_marks(WaterMarks { high: 4, low: 1, limit: 100 });
            x.set_write_listener(move |x: &mut Exchange| {
                r.note("writable");
                ask(cell.end, x, &r)
            });
            write!(x, "more than four")?;
        }
        Where::ForeignBefore => foreign(cell.end, record),
        Where::OnComplete | Where::AfterTerminal => x.complete()?,
        Where::OnTimeout | Where::OnError | Where::ExecutorTask | Where::ForeignAfter => {}
    }
    Ok(())
}

/// Sends the end from another thread.
fn foreign(end: End, record: &Arc<Record>) {
    let (context, task_record) = (record.context(), record.clone());
    thread::scope(|s| {
        s.spawn(move || {
            let _ = context.executor().execute(move |x: &mut Exchange| {
                task_record.note("task");
                ask(end, x, &task_record)
            });
        });
    });
}

fn script(cell: Cell, record: &Arc<Record>) -> impl Fn(&mut Exchange, Callback) -> Result<()> + use<> {
    let record = record.clone();
    move |x, callback| match callback {
        Callback::DoRequest => {
            record.note("do_request");
            first(cell, x, &record)
        }
        Callback::Handler(DispatchType::Request) => {
            record.note("handler");
            if cell.place == Where::DoRequest { x.complete() } else { first(cell, x, &record) }
        }
        Callback::Handler(DispatchType::Error) => {
            record.note("error handler");
            write!(x, "error")
        }
        Callback::Handler(DispatchType::Async) => {
            record.note("second cycle");
            write!(x, "second")
        }
        Callback::DoResponse => x.complete(),
        other => panic!("{other:?} is not for the container"),
    }
}

fn disturb(cell: Cell, world: &World, key: Key, record: &Arc<Record>) {
    match cell.disturbance {
        Disturbance::None | Disturbance::SecondStartAsync => {}
        // Under `Tolerate`: with a body under way its input fails, without one the exchange is told nothing and
        // nothing reads on. (`Abort` is the cell of the FIN.)
        Disturbance::HalfClose if cell.place == Where::ReadListener => {
            world.event(key, |e| e.input_failed(key, EndReason::ClientClosed));
        }
        Disturbance::HalfClose => world.event(key, |e| e.input_ended(key)),
        Disturbance::TimerSameTurn => world.advance(100),
        Disturbance::Fin => world.event(key, |e| e.peer_finished(key)),
        Disturbance::Rst => world.event(key, |e| e.peer_reset(key)),
        Disturbance::WriteBlocked => world.set_blocked(true),
        Disturbance::ExecutorFull => {
            let executor = record.context().executor();
            while executor.execute(|_: &mut Exchange| ()).is_ok() {}
        }
        Disturbance::ShutdownBegins => world.event(key, |e| e.shutdown_forced(key, EndReason::Shutdown)),
    }
}

fn provoke(cell: Cell, world: &World, key: Key, record: &Arc<Record>) {
    match cell.place {
        Where::ReadListener => world.event(key, |e| e.input(key, Bytes::from("data")).unwrap()),
        Where::WriteListener if cell.disturbance != Disturbance::WriteBlocked => world.set_blocked(false),
        Where::OnTimeout => world.advance(100),
        Where::OnError => world.event(key, |e| e.overloaded(key)),
        Where::ExecutorTask => {
            let r = record.clone();
            let _ = record.context().executor().execute(move |x: &mut Exchange| {
                r.note("task");
                ask(cell.end, x, &r)
            });
        }
        Where::ForeignAfter | Where::AfterTerminal => foreign(cell.end, record),
        _ => {}
    }
}

fn run(cell: Cell) {
    let what = format!("{cell:?}");
    let world = World::new();
    let record = Arc::new(Record::default());
    let begin = Begin {
        coordinated: cell.place == Where::DoRequest,
        has_body: cell.place == Where::ReadListener,
        ..Begin::default()
    };
    if cell.place == Where::WriteListener {
        world.set_blocked(true);
    }
    let key = world.start(begin, script(cell, &record));
    disturb(cell, &world, key, &record);
    provoke(cell, &world, key, &record);
    world.turn();
    world.set_blocked(false);
    world.advance(1000);
    for _ in 0..3 {
        world.turn();
    }
    let at_end = record.callbacks.lock().unwrap().clone();
    let completes = at_end.iter().filter(|what| **what == "complete").count();
    assert_eq!(completes, 1, "{what}: on_complete, in {at_end:?}");
    assert_eq!(at_end.last(), Some(&"complete"), "{what}: nothing runs behind it, in {at_end:?}");
    for once in ["timeout", "error", "error handler", "second cycle"] {
        assert!(at_end.iter().filter(|what| **what == once).count() <= 1, "{what}: {once} in {at_end:?}");
    }
    let context = record.context();
    assert!(context.cancel_token().is_cancelled(), "{what}: the token has fired");
    assert_eq!(context.executor().queued(), 0, "{what}: a place in the queue leaks");
    assert_eq!(world.counters().ended_total(), 1, "{what}: one terminal transition");
    world.assert_at_rest(&what);
    late_handles_answer(&context, &what);
}

/// Fault 23: every question to a handle whose exchange is over is answered.
fn late_handles_answer(context: &AsyncContext, what: &str) {
    assert!(context.with(|_| ()).is_err(), "{what}");
    assert!(context.dispatch(|_: &mut Exchange| ()).is_err(), "{what}");
    assert!(context.executor().execute(|_: &mut Exchange| ()).is_err(), "{what}");
    assert_eq!(context.request().head().path(), "/answer", "{what}: fault 20, the snapshot stays");
}

#[test]
fn the_grid_of_495_cells() {
    let mut cells = 0;
    for end in ENDS {
        for place in PLACES {
            for disturbance in DISTURBANCES {
                run(Cell { end, place, disturbance });
                cells += 1;
            }
        }
    }
    assert_eq!(cells, 495);
}
