//! What a task carries crosses threads.
use shardlet::exchange::{AsyncContext, Exchange};
use std::rc::Rc;

fn send(context: &AsyncContext) {
    let shared = Rc::new(1);
    let _ = context.executor().execute(move |x: &mut Exchange| {
        drop(shared);
        x.complete()
    });
}

fn main() {
    let _ = send;
}
