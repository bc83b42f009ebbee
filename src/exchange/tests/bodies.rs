//! The rules for reading and writing (L-18, L-19).

use super::*;
use crate::exchange::{Read, ReadListener, SlowClient, Wait, WaterMarks};
use bytes::Bytes;

type Log = Rc<RefCell<Vec<String>>>;

fn note(log: &Log, text: impl Into<String>) {
    log.borrow_mut().push(text.into());
}

#[test]
fn l_18_data_is_told_once_until_not_ready_has_been_said() {
    struct Reader(Log);
    impl ReadListener for Reader {
        fn on_data_available(&mut self, x: &mut Exchange) -> Result<()> {
            while x.is_read_ready() {
                match x.read()? {
                    Read::Data(bytes) => note(&self.0, String::from_utf8_lossy(&bytes)),
                    Read::NotReady | Read::End => break,
                }
            }
            Ok(())
        }
        fn on_all_data_read(&mut self, x: &mut Exchange) -> Result<()> {
            note(&self.0, "all");
            x.complete()
        }
    }
    let world = World::new();
    let log = Log::default();
    let events = log.clone();
    let key = world.start(Begin { has_body: true, ..Begin::default() }, move |x, _| {
        x.start_async();
        x.set_read_listener(Reader(events.clone()));
    });
    for part in ["a", "b"] {
        world.event(key, |e| e.input(key, Bytes::from(part)).unwrap());
    }
    world.event(key, |e| e.input_ended(key));
    assert_eq!(*log.borrow(), ["a", "b", "all"]);
    world.assert_at_rest("reading");
}

#[test]
fn l_18_a_buffered_body_is_whole_before_the_handler_starts() {
    let world = World::new();
    let begin = Begin { has_body: true, wait: Wait::WholeBody, ..Begin::default() };
    let key = world.start(begin, |x, _| {
        let body = x.take_body();
        x.write(body)
    });
    world.event(key, |e| e.input(key, Bytes::from("he")).unwrap());
    world.event(key, |e| e.input(key, Bytes::from("llo")).unwrap());
    assert_eq!(world.counters().callbacks, 0);
    world.event(key, |e| e.input_ended(key));
    assert_eq!(world.body(key), "hello");
    world.assert_at_rest("buffered");
}

/// Fault 60: not before the "no", once for each "no", and not again while the answer is "yes".
#[test]
fn l_19_fault_60_write_possible_comes_once_after_readiness_turned_false() {
    let world = World::new();
    world.set_blocked(true);
    let calls = Rc::new(Cell::new(0));
    let (counted, kept) = (calls.clone(), Rc::new(RefCell::new(None)));
    let keep = kept.clone();
    let key = world.get(move |x| {
        *keep.borrow_mut() = Some(x.start_async());
        x.set_water_marks(WaterMarks { high: 8, low: 2, limit: 100 });
        let counted = counted.clone();
        x.set_write_listener(move |x: &mut Exchange| {
            counted.set(counted.get() + 1);
            assert!(x.is_write_ready());
        });
        write!(x, "0123456789").unwrap();
        assert!(!x.is_write_ready());
        x.flush()
    });
    let context = kept.borrow_mut().take().unwrap();
    world.drain(key, 1);
    assert_eq!(calls.get(), 0, "one byte is not the low water mark");
    for bytes in [7, 1, 1] {
        world.drain(key, bytes);
        assert_eq!(calls.get(), 1, "once at the low water mark, and not for every byte behind it");
    }
    context.dispatch(|x: &mut Exchange| write!(x, "short").and_then(|()| x.flush())).unwrap();
    world.drain(key, 5);
    assert_eq!(calls.get(), 1, "readiness had not turned false");
    context.dispatch(|x: &mut Exchange| write!(x, "0123456789").and_then(|()| x.flush())).unwrap();
    world.drain(key, 10);
    assert_eq!(calls.get(), 2, "once for the second time");
    world.set_blocked(false);
    context.dispatch(|x: &mut Exchange| x.complete()).unwrap();
    assert_eq!((calls.get(), world.body(key).len()), (2, 25));
    world.assert_at_rest("write possible");
}

#[test]
fn l_19_slow_client_policies() {
    let cases = [
        (SlowClient::DropOldest, "bbbb|cccc|", EndReason::Completed),
        (SlowClient::Coalesce, "aaaa|cccc|", EndReason::Completed),
        (SlowClient::Disconnect, "", EndReason::SlowClient),
    ];
    for (policy, body, reason) in cases {
        let world = World::new();
        world.set_blocked(true);
        let key = world.get(move |x| {
            x.set_water_marks(WaterMarks { high: 10, low: 2, limit: 100 });
            x.set_slow_client(policy);
            x.write_keyed(1, "aaaa|")?;
            x.write_keyed(2, "bbbb|")?;
            x.write_keyed(2, "cccc|")
        });
        world.set_blocked(false);
        assert_eq!((world.body(key).as_str(), world.ended(reason)), (body, 1), "{policy:?}");
        world.assert_at_rest("policy");
    }
}
