axolotl train train.yaml
