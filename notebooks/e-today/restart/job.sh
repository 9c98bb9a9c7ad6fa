# Two launchers on one machine stand for two hosts. The one of B keeps the store of the rendezvous.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
torchrun="torchrun --nnodes 1:2 --nproc-per-node 1 --max-restarts 2 --rdzv-backend c10d
    --rdzv-endpoint 127.0.0.1:29611 --rdzv-conf last_call_timeout=2,is_host"
HOST=A CHECKPOINTS=$DISK_OF_A $torchrun=0 train.py &
HOST=B CHECKPOINTS=$DISK_OF_B $torchrun=1 train.py &
wait
