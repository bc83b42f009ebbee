//! An echo server on the `shards` API: a port per process, a listener per shard, a future per connection.
//!
//! `cargo run --example tcp_echo -- 127.0.0.1:7000`, then `nc 127.0.0.1 7000`. Port 0 picks a free one; the line
//! printed tells which. Ends with Ctrl-C.

use shards::{
    Shard, Shards,
    net::{AcceptEvents, AcceptMode, Binding, Socket, Stream},
};
use std::{error::Error, rc::Rc};

struct Echo;

impl AcceptEvents for Echo {
    fn on_accepted(&self, shard: &Shard, socket: Socket) {
        shard.spawn(echo(Stream::new(socket)));
    }
}

/// Sends back what comes in. While the peer does not read, the write does not resolve, so nothing more is read:
/// back-pressure without a line of code.
async fn echo(stream: Stream) {
    let mut buffer = Vec::new();
    while let Ok(Some(received)) = stream.read().await {
        buffer.clear();
        buffer.extend_from_slice(&received);
        drop(received);
        match stream.write_all(buffer).await {
            Ok(sent) => buffer = sent,
            Err(_) => return,
        }
    }
    // The peer has finished; so do we. If it is gone altogether there is nobody to tell.
    let _ = stream.finish();
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let builder = Shards::builder().shards(2).name("echo");
    let binding = Binding::bind(&address.parse()?, 2, AcceptMode::ReusePort, 1024)?;
    println!("listening on {}", binding.address());
    let shards = builder.start(move |shard| {
        let binding = binding.clone();
        async move {
            let listener = binding.listen(&shard, Rc::new(Echo)).expect("every shard was counted");
            shard.stopped().await;
            drop(listener);
        }
    })?;
    for end in shards.join() {
        end.result?;
    }
    Ok(())
}
