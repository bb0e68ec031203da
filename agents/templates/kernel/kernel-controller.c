// SPDX-License-Identifier: GPL-2.0
/* Additive increase, multiplicative decrease with other numbers than Reno's: a loss leaves seven eighths. */
#include <linux/module.h>
#include <net/tcp.h>

static u32 my_crate_ssthresh(struct sock *sk)
{
	return max(tcp_snd_cwnd(tcp_sk(sk)) * 7 / 8, 2U);
}

static struct tcp_congestion_ops my_crate __read_mostly = {
	.name = "my_crate",
	.owner = THIS_MODULE,
	.ssthresh = my_crate_ssthresh,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.cong_avoid = tcp_reno_cong_avoid,
};

static int __init my_crate_register(void)
{
	return tcp_register_congestion_control(&my_crate);
}

static void __exit my_crate_unregister(void)
{
	tcp_unregister_congestion_control(&my_crate);
}

module_init(my_crate_register);
module_exit(my_crate_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("AIMD that keeps seven eighths");
