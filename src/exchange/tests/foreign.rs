//! L-23: responses changed by callers that do not know the executor.

use super::*;
use crate::{
    error::Error,
    exchange::{ForeignCalls, ForeignResponse},
};
use http::StatusCode;

fn elsewhere<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> R {
    thread::spawn(call).join().unwrap()
}

/// A parked exchange and its foreign handle.
fn parked(world: &World, policy: ForeignCalls) -> (Key, ForeignResponse) {
    let place = Rc::new(RefCell::new(None));
    let keep = place.clone();
    let key = world.get(move |x| *keep.borrow_mut() = Some(x.start_async().foreign_response(policy)));
    let handle = place.borrow_mut().take().unwrap();
    (key, handle)
}

#[test]
fn l_23_refuse_is_the_default_and_has_no_effect() {
    let world = World::new();
    let (key, response) = parked(&world, ForeignCalls::default());
    let handle = response.clone();
    let results = elsewhere(move || {
        [
            handle.set_status(StatusCode::IM_A_TEAPOT),
            handle.set_header("X", "y"),
            handle.write("lost"),
            handle.complete(),
        ]
    });
    for result in results {
        assert!(matches!(result, Err(Error::Misuse(_))), "{result:?}");
    }
    world.turn();
    assert!(!world.wire(key).finished, "nothing has happened");
    // On its own shard the same handle is no foreign call.
    response.write("whole").unwrap();
    response.complete().unwrap();
    world.turn();
    assert_eq!((world.wire(key).status, world.body(key)), (200, "whole".to_owned()));
    world.assert_at_rest("refuse");
}

#[test]
fn l_23_warn_routes_in_order_and_answers_too_late_calls() {
    let world = World::new();
    let (key, response) = parked(&world, ForeignCalls::Warn);
    let handle = response.clone();
    elsewhere(move || {
        handle.set_status(StatusCode::ACCEPTED).unwrap();
        assert!(matches!(handle.set_header("Bad Name", "x"), Err(Error::InvalidField)));
        assert!(matches!(handle.set_header("X", "a\r\nSet-Cookie: b"), Err(Error::InvalidField)));
        handle.set_header("X", "y").unwrap();
        handle.write("foreign").unwrap();
        handle.complete().unwrap();
        assert!(
            matches!(handle.complete(), Err(Error::LimitReached { limit: "tasks_max" })),
            "the executor is bounded"
        );
    });
    assert!(world.wire(key).status == 0, "nothing ran on the foreign thread");
    world.turn();
    assert_eq!((world.wire(key).status, world.body(key)), (202, "foreign".to_owned()));
    let late = elsewhere(move || response.write("late"));
    assert!(matches!(late, Err(Error::Ended(EndReason::Completed))), "{late:?}");
    world.assert_at_rest("warn");
}

#[test]
fn l_23_warn_logs_once_for_each_call_site() {
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (sink, world) = (Sink::default(), World::new());
    let writer = sink.clone();
    let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let handles: Vec<_> = (0..3).map(|_| parked(&world, ForeignCalls::Warn)).collect();
    let foreign: Vec<_> = handles.iter().map(|(_, handle)| handle.clone()).collect();
    elsewhere(move || {
        tracing::subscriber::with_default(log, || {
            for handle in &foreign {
                handle.write("one site").unwrap();
                handle.complete().unwrap();
            }
        });
    });
    world.turn();
    let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.lines().count(), 2, "two places, three calls each: {text}");
    assert!(text.contains("foreign.rs:") && text.contains("complete"), "{text}");
    for (key, _) in handles {
        assert_eq!(world.body(key), "one site");
    }
    world.assert_at_rest("log");
}
