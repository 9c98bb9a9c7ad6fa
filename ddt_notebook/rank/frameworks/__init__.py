"""What each framework needs of a rank beside ``torch.distributed``; one module for each."""
