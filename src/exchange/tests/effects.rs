//! What a callback asks for takes effect when it returns (L-7), and every way to end is one end (L-9).

use super::*;
use crate::{error::Error, exchange::AsyncContext};

type Log = Rc<RefCell<Vec<String>>>;

/// Runs a request whose callbacks note when they begin and end, and gives the notes.
fn noted(begin: Begin, ask: impl Fn(&mut Exchange, Callback) -> Result<()> + 'static) -> Vec<String> {
    let (world, log) = (World::new(), Log::default());
    let notes = log.clone();
    world.start(begin, move |x, callback| -> Result<()> {
        let (cycle, ends) = (x.cycle(), notes.clone());
        notes.borrow_mut().push(format!("{callback:?} {cycle} begins"));
        if cycle == 0 {
            x.on_complete(move |_, reason| ends.borrow_mut().push(format!("complete {reason}")));
        }
        ask(x, callback)?;
        notes.borrow_mut().push(format!("{callback:?} {cycle} returns"));
        Ok(())
    });
    world.turn();
    world.assert_at_rest("effects");
    log.take()
}

#[test]
fn l_7_complete_takes_effect_when_the_callback_returns() {
    let log = noted(Begin::default(), |x, _| {
        x.complete()?;
        assert!(matches!(write!(x, "behind complete"), Err(Error::Ended(_) | Error::Misuse(_))));
        Ok(())
    });
    assert_eq!(log, ["Handler(Request) 0 begins", "Handler(Request) 0 returns", "complete completed"]);
}

#[test]
fn l_7_redispatch_takes_effect_when_the_callback_returns() {
    let log = noted(Begin::default(), |x, _| if x.cycle() == 0 { x.redispatch("/again") } else { Ok(()) });
    let expected = [
        "Handler(Request) 0 begins",
        "Handler(Request) 0 returns",
        "Handler(Async) 1 begins",
        "Handler(Async) 1 returns",
        "complete completed",
    ];
    assert_eq!(log, expected);
}

#[test]
fn l_7_service_takes_effect_when_the_callback_returns() {
    let coordinated = Begin { coordinated: true, ..Begin::default() };
    let log = noted(coordinated, |x, callback| match callback {
        Callback::DoRequest => x.service(),
        Callback::DoResponse => x.complete(),
        _ => Ok(()),
    });
    let expected = [
        "DoRequest 0 begins",
        "DoRequest 0 returns",
        "Handler(Request) 0 begins",
        "Handler(Request) 0 returns",
        "DoResponse 0 begins",
        "DoResponse 0 returns",
        "complete completed",
    ];
    assert_eq!(log, expected);
}

/// What is told to a parked exchange, and the one end that follows.
#[test]
fn l_9_each_way_to_end_is_one_end_with_its_reason() {
    use EndReason::*;
    type Tell = fn(&Exchanges, Key, &AsyncContext);
    let told: [(EndReason, Tell); 11] = [
        (ClientClosed, |e, key, _| e.peer_finished(key)),
        (ClientReset, |e, key, _| e.peer_reset(key)),
        (ProtocolError, |e, key, _| e.input_failed(key, ProtocolError)),
        (BodyTimeout, |e, key, _| e.input_failed(key, BodyTimeout)),
        (WriteTimeout, |e, key, _| e.output_failed(key, WriteTimeout)),
        (SlowClient, |e, key, _| e.output_failed(key, SlowClient)),
        (Overload, |e, key, _| e.overloaded(key)),
        (Shutdown, |e, key, _| e.shutdown_forced(key, Shutdown)),
        (Reload, |e, key, _| e.shutdown_forced(key, Reload)),
        (Completed, |_, _, context| drop(context.dispatch(|x: &mut Exchange| x.complete()))),
        (Aborted, |_, _, context| drop(context.dispatch(|x: &mut Exchange| x.abort()))),
    ];
    for (first, tell) in told {
        for (_, again) in told {
            let (world, slot) = (World::new(), Rc::new(RefCell::new(None)));
            let kept = slot.clone();
            let begin = Begin { has_body: true, ..Begin::default() };
            let key = world.start(begin, move |x, callback| {
                if callback == Callback::Handler(DispatchType::Request) {
                    *kept.borrow_mut() = Some(x.start_async());
                }
            });
            let context = slot.take().expect("it waits");
            for tell in [tell, again] {
                if world.exchanges.keys().iter().any(|(live, _)| *live == key) {
                    world.event(key, |e| tell(e, key, &context));
                    world.turn();
                }
            }
            assert_eq!(world.ended(first), 1, "{first}: {:?}", world.counters());
            assert_eq!(world.counters().ended_total(), 1, "{first}");
        }
    }
    type Fail = fn(&mut Exchange) -> Result<()>;
    let failing: [(EndReason, Fail); 3] = [
        (HandlerFailed, |_| Err(Error::handler("broken"))),
        (Panicked, |_| std::panic::resume_unwind(Box::new("asked for by the test"))),
        (TimedOut, |x| {
            x.start_async();
            x.set_timeout(Duration::ZERO);
            Ok(())
        }),
    ];
    for (reason, handler) in failing {
        let world = World::new();
        world.get(handler);
        world.turn();
        assert_eq!((world.ended(reason), world.counters().ended_total()), (1, 1), "{reason}");
        world.assert_at_rest(&reason.to_string());
    }
}
