// SPDX-License-Identifier: GPL-2.0
/* A queue of ten packets: first in, first out. */
#include <linux/module.h>
#include <net/pkt_sched.h>

#define MOST_PACKETS 10

static int my_crate_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	if (likely(sch->q.qlen < MOST_PACKETS))
		return qdisc_enqueue_tail(skb, sch);
	return qdisc_drop(skb, sch, to_free);
}

static struct Qdisc_ops my_crate_ops __read_mostly = {
	.id = "my_crate",
	.priv_size = 0,
	.enqueue = my_crate_enqueue,
	.dequeue = qdisc_dequeue_head,
	.peek = qdisc_peek_head,
	.reset = qdisc_reset_queue,
	.owner = THIS_MODULE,
};

static int __init my_crate_init(void)
{
	return register_qdisc(&my_crate_ops);
}

static void __exit my_crate_exit(void)
{
	unregister_qdisc(&my_crate_ops);
}

module_init(my_crate_init);
module_exit(my_crate_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A queue of ten packets");
