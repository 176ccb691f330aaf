"""A whole node inside this process: publish, read everything, read some of it, and go on after a restart."""

import veredus


def main() -> None:
    with veredus.embedded() as node:
        with node.publisher("trades", source="desk-1") as publisher:
            for index in range(1_000):
                publisher.publish("stock.SUN", b"100 shares", {"quote": 30 + index / 500})
            number = publisher.publish("stock.IBM", b"5 shares", {"quote": 101.0})
            receipt = publisher.wait(number)
            print(f"number {receipt.number} has sequence {receipt.sequence}, durable: {receipt.durability.name}")

        with node.subscribe("trades", subscriber="risk", keys="stock.SUN", where="quote > 31.99") as subscription:
            for publication in subscription:
                print(publication.sequence, publication.attributes, publication.body)
                subscription.settle(publication)
                if publication.sequence == 1_000:
                    break

        with node.publisher("trades", source="desk-1") as publisher:
            print(f"the stream has {publisher.last_number} publications of desk-1; the next one is number", end=" ")
            print(publisher.publish("stock.SUN", b"1 share"))

        with node.subscribe("trades", start=veredus.tail(2), until=1_003) as subscription:
            print([(publication.sequence, publication.key) for publication in subscription])


if __name__ == "__main__":
    main()
