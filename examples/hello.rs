//! A server as a library: state without a lock, one copy for each shard; a path parameter; an asynchronous handler.
//!
//! ```sh
//! cargo run --example hello -- 127.0.0.1:8080 &
//! curl http://127.0.0.1:8080/hello/world
//! ```

use shardlet::{Exchange, Result, Router, Server, asynchronous, get, routing::Handler};
use std::{cell::RefCell, collections::HashMap, env, error::Error, net::SocketAddr, rc::Rc, time::Duration};

/// Who was greeted how often, on this shard. No other thread can reach it.
type Greeted = Rc<RefCell<HashMap<String, u32>>>;

fn hello(x: &mut Exchange, greeted: &Greeted) -> Result<()> {
    let name = x.parameter("name").unwrap_or_default();
    let count = {
        let mut greeted = greeted.borrow_mut();
        let count = greeted.entry(name.clone()).or_default();
        *count += 1;
        *count
    };
    x.response().set_content_type("text/plain; charset=utf-8")?;
    writeln!(x, "Hello {name}, {count} on {}", shards::Shard::current().id())
}

/// Waits without a thread.
fn later() -> impl Handler {
    asynchronous(async |x: &mut Exchange| -> Result<()> {
        x.sleep(Duration::from_millis(50)).await?;
        writeln!(x, "Hello, a little later")
    })
}

fn routes(_: &shards::Shard) -> Router {
    let greeted = Greeted::default();
    Router::new()
        .route("/hello/{name}", get(move |x: &mut Exchange| hello(x, &greeted)))
        .route("/later", get(later()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let address: SocketAddr = env::args().nth(1).as_deref().unwrap_or("127.0.0.1:8080").parse()?;
    let server = Server::builder().listen(address).start(routes)?;
    println!("http://{}", server.address());
    server.join();
    Ok(())
}
