import torch
from accelerate import Accelerator

accelerator = Accelerator()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(torch.zeros(64, 8), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
